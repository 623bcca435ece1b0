"use strict";
(() => {
  const CHUNK = 200, MOST_HITS = 100;
  const parts = JSON.parse(document.getElementById("data").textContent);
  const tree = document.getElementById("tree");
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const bytes = count => {
    const units = ["B", "kB", "MB", "GB"];
    let at = 0;
    while (count >= 1000 && at < units.length - 1) { count /= 1000; at += 1; }
    return `${at ? count.toFixed(1) : count} ${units[at]}`;
  };

  // What makes each value and what uses it, once somebody looks.
  parts.forEach(part => {
    part.makers = new Map();
    part.nodes.forEach(([, , , , results], node) => results.forEach(value => part.makers.set(value, node)));
    part.of = part.layers.map(() => []);
    part.nodes.forEach(([layer], node) => part.of[layer].push(node));
    part.shown = part.layers.map(() => 0);
    part.boxes = [];
  });
  const users = part => {
    if (!part.users) {
      part.users = new Map();
      part.nodes.forEach(([, , , operands], node) => new Set(operands).forEach(value => {
        if (!part.users.has(value)) part.users.set(value, []);
        part.users.get(value).push(node);
      }));
    }
    return part.users;
  };

  const jump = (part, node, text) => {
    const button = make("button", "jump", text);
    button.type = "button";
    button.addEventListener("click", () => look(anchor(part, node)));
    return button;
  };
  const look = hash => { if (location.hash === `#${hash}`) go(); else location.hash = hash; };
  const anchor = (part, node) => `node-${parts.indexOf(part)}-${node}`;

  const valueLine = (part, value, isResult) => {
    const [name, type, size, file] = part.values[value];
    const line = make("div", "value"), maker = part.makers.get(value);
    line.append(!isResult && maker !== undefined ? jump(part, maker, name) : make("span", "", name));
    line.append(" ", make("span", "type soft", type));
    if (size !== undefined) line.append(make("span", "soft", ` weight, ${bytes(size)}${file ? ` in ${file}` : " in the graph"}`));
    else if (part.inputs.includes(value)) line.append(make("span", "soft", " input of the graph"));
    if (isResult) {
      part.outputs.filter(([, output]) => output === value).forEach(([output]) => line.append(make("span", "soft", ` output ${output}`)));
      const all = users(part).get(value) || [];
      if (all.length) line.append(make("span", "soft", " → "));
      all.slice(0, 20).forEach((node, at) => line.append(at ? ", " : "", jump(part, node, `${part.nodes[node][1]} ${part.nodes[node][2]}`)));
      if (all.length > 20) line.append(make("span", "soft", ` and ${all.length - 20} more`));
    }
    return line;
  };

  const nodeBox = (part, node) => {
    const [, op, name, operands, results, attributes] = part.nodes[node];
    const box = make("details", "node"), line = make("summary");
    box.id = anchor(part, node);
    line.append(make("span", "op", op), make("span", "", name), make("span", "type soft", results.length ? part.values[results[0]][1] : ""));
    box.append(line);
    const fill = () => {
      if (box.children.length > 1) return;
      const list = make("dl");
      [["inputs", operands, false], ["outputs", results, true]].forEach(([title, values, isResult]) => {
        const held = make("dd");
        values.forEach(value => held.append(valueLine(part, value, isResult)));
        if (!values.length) held.append(make("span", "soft", "none"));
        list.append(make("dt", "", title), held);
      });
      if (attributes) list.append(make("dt", "", "attributes"), make("dd", "type", attributes));
      box.append(list);
    };
    box.fill = fill;
    box.addEventListener("toggle", () => { if (box.open) fill(); });
    return box;
  };

  // Shows the nodes of a layer up to so many.
  const show = (part, layer, count) => {
    const { box, body, more } = part.boxes[layer], all = part.of[layer];
    const added = document.createDocumentFragment();
    while (part.shown[layer] < Math.min(count, all.length)) added.append(nodeBox(part, all[part.shown[layer]++]));
    body.append(added);
    const left = all.length - part.shown[layer];
    more.hidden = left === 0;
    more.textContent = `${Math.min(left, CHUNK)} more of ${left} nodes`;
    return box;
  };

  parts.forEach(part => {
    if (parts.length > 1) tree.append(make("h3", "", part.name));
    part.layers.forEach((name, layer) => {
      const box = make("details", "layer"), line = make("summary", "", name), count = part.of[layer].length;
      line.append(make("span", "soft", count === 1 ? "1 node" : `${count} nodes`));
      const hold = make("div"), body = make("div"), more = make("button", "more");
      more.type = "button";
      more.addEventListener("click", () => show(part, layer, part.shown[layer] + CHUNK));
      hold.append(body, more);
      box.append(line, hold);
      part.boxes.push({ box, body, more });
      box.addEventListener("toggle", () => { if (box.open && !part.shown[layer]) show(part, layer, CHUNK); });
      tree.append(box);
    });
  });

  // Opens the node that the address names.
  const go = () => {
    const found = /^#node-(\d+)-(\d+)$/.exec(location.hash), part = found && parts[found[1]], node = found && Number(found[2]);
    if (!part || !part.nodes[node]) return;
    const layer = part.nodes[node][0];
    const box = show(part, layer, Math.max(part.of[layer].indexOf(node) + 1, CHUNK));
    box.open = true;
    document.querySelectorAll(".found").forEach(other => other.classList.remove("found"));
    const target = document.getElementById(location.hash.slice(1));
    target.fill();
    target.open = true;
    target.classList.add("found");
    target.querySelector("summary").focus({ preventScroll: true });
    target.scrollIntoView({ block: "center" });
  };
  window.addEventListener("hashchange", go);

  const tools = document.getElementById("tools"), search = document.getElementById("search");
  const hits = document.getElementById("hits"), count = document.getElementById("count");
  const text = (part, node) => {
    const [, op, name, operands, results] = part.nodes[node];
    const values = [...operands.filter(value => part.values[value].length > 2), ...results];
    return [op, name, ...values.map(value => part.values[value].slice(0, 2).join(" "))].join(" ").toLowerCase();
  };
  const find = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(word => word);
    hits.replaceChildren();
    count.textContent = "";
    if (!words.length) return;
    let total = 0;
    parts.forEach(part => {
      part.texts = part.texts || part.nodes.map((_, node) => text(part, node));
      part.texts.forEach((all, node) => {
        if (!words.every(word => all.includes(word))) return;
        total += 1;
        if (total > MOST_HITS) return;
        const [layer, op, name] = part.nodes[node], line = make("li");
        line.append(jump(part, node, `${op} ${name}`), make("span", "soft", ` ${parts.length > 1 ? `${part.name}, ` : ""}${part.layers[layer]}`));
        hits.append(line);
      });
    });
    count.textContent = total > MOST_HITS ? `${total} nodes, of which the first ${MOST_HITS} are here` : total === 1 ? "1 node" : `${total} nodes`;
  };
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(find, 120); });
  tools.hidden = false;

  // Places that other sections name by a value; what is not in the graph as it is shown stays a text.
  document.querySelectorAll("button[data-value]").forEach(button => {
    const part = parts.find(other => other.name === button.dataset.part);
    const value = part ? part.values.findIndex(([name]) => name === button.dataset.value) : -1;
    const node = value < 0 ? undefined : part.makers.get(value);
    if (node === undefined) button.replaceWith(make("code", "", button.dataset.value));
    else button.addEventListener("click", () => look(anchor(part, node)));
  });
  go();
})();
