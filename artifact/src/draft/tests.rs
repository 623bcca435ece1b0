//! Each way of publishing, with an error, a kill and a signal at each of its steps: the place has the old
//! artifact or the new one, never half of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::leftovers::entries_aside;
use super::*;
use crate::MANIFEST;
use crate::manifest::Manifest;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder with a file that says what it is.
fn marked(folder: PathBuf, mark: &str) {
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("mark"), mark).unwrap();
}

/// An artifact with files of the names that all have, and one of its own; each says which artifact it is of.
fn artifact(folder: &Path, mark: &str) {
    let own = format!("{mark}.txt");
    for name in ["config.json", "m/1/model.onnx", "model.onnx", &own] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, mark).unwrap();
    }
    let manifest = json!({
        "schema": Manifest::schema(), "producer": mark, "source": {"name": "m", "files": []}, "architecture": "bert",
        "task": null, "target": "ort", "opset": 20, "precision": "f32", "fusion": true,
        "files": [{"name": "model.onnx", "bytes": mark.len()}],
        "companions": ["config.json", "m/1/model.onnx", own],
        "parameters": 0, "parts": [], "pad_token_id": null,
    });
    fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
}

/// Which artifact is whole in a folder; none where there is no manifest.
fn whole(folder: &Path) -> Option<String> {
    let manifest = folder.join(MANIFEST).exists().then(|| Manifest::read(folder).unwrap())?;
    let mark = &manifest.producer;
    for name in manifest.file_names().filter(|name| *name != MANIFEST) {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap_or_default(), *mark, "{name}");
    }
    Some(manifest.producer)
}

/// A way in which a draft takes its place.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// There is nothing yet.
    Free,
    /// One folder is exchanged with the other.
    Exchange,
    /// The filesystem cannot exchange folders.
    TwoSteps,
    /// The folder cannot be renamed, as it turns out.
    Unmovable,
    /// The folder is the root of a mount, as is known before.
    Mount,
}

const WAYS: [Way; 5] = [Way::Free, Way::Exchange, Way::TwoSteps, Way::Unmovable, Way::Mount];

/// A place and a draft for it that is ready to be published.
struct Setting {
    way: Way,
    folder: TempDir,
    draft: Draft,
    registry: &'static Registry,
}

impl Setting {
    fn new(way: Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        if !matches!(way, Way::Free) {
            artifact(&target, "old");
        }
        let place = match way {
            Way::Mount => Place::of_kind(target.clone(), target, Kind::Mount).unwrap(),
            _ => Place::find(&target).unwrap(),
        };
        let registry: &'static Registry = Box::leak(Box::new(Registry::new()));
        let draft = Draft::create_at(registry, place, false).unwrap();
        artifact(draft.folder(), "new");
        Self { way, folder, draft, registry }
    }

    /// Publishes, with something done before a step, counted from 1. Says whether there was such a step.
    fn publish(self, at: usize, mut act: impl FnMut(&Path) -> io::Result<()>) -> (TempDir, Result<PathBuf>, bool) {
        let Self { way, folder, draft, .. } = self;
        let (mut step, mut acted) = (0, false);
        let published = draft.publish_by(&mut || {
            step += 1;
            if step == at {
                acted = true;
                act(folder.path())?;
            }
            // The second is the exchange.
            match way {
                Way::TwoSteps if step == 2 => Err(Errno::INVAL.into()),
                Way::Unmovable if step == 2 => Err(Errno::XDEV.into()),
                _ => Ok(()),
            }
        });
        (folder, published, acted)
    }
}

/// Does something at each step of each way; `check` sees what it came to.
fn at_each_step(
    mut act: impl FnMut(&'static Registry, &Path) -> io::Result<()>,
    mut check: impl FnMut(Way, &Path, Result<PathBuf>),
) {
    for way in WAYS {
        let mut steps = 0;
        loop {
            let setting = Setting::new(way);
            let registry = setting.registry;
            let (folder, published, acted) = setting.publish(steps + 1, |folder| act(registry, folder));
            if !acted {
                assert_eq!(whole(&folder.path().join("out")).as_deref(), Some("new"), "{way:?}");
                assert_eq!(names(folder.path()), ["out"], "{way:?}");
                assert_eq!(names(&folder.path().join("out")), ["config.json", "m", "model.onnx", "new.txt", MANIFEST]);
                break;
            }
            steps += 1;
            check(way, folder.path(), published);
        }
        let expected = match way {
            Way::Free => 1,
            Way::Exchange => 2,
            Way::TwoSteps => 4,
            Way::Unmovable => 2 + 2 * 5,
            Way::Mount => 2 * 5,
        };
        assert_eq!(steps, expected, "{way:?}");
    }
}

/// What was there at first.
fn old(way: Way) -> Option<&'static str> {
    if matches!(way, Way::Free) { None } else { Some("old") }
}

#[test]
fn what_fails_leaves_the_old_one() {
    at_each_step(
        |_, _| Err(io::Error::other("broken")),
        |way, folder, published| {
            let target = folder.join("out");
            assert!(format!("{:#}", published.unwrap_err()).contains("broken"));
            assert_eq!(whole(&target).as_deref(), old(way), "{way:?}");
            let left = if old(way).is_some() { vec!["out"] } else { Vec::new() };
            assert_eq!(names(folder), left, "{way:?}");
            if old(way).is_some() {
                assert_eq!(names(&target), ["config.json", "m", "model.onnx", "old.txt", MANIFEST], "{way:?}");
            }
        },
    );
}

#[test]
fn a_signal_waits_until_the_new_one_is_there() {
    let ended = Arc::new(AtomicBool::new(false));
    let mut signals = Vec::new();
    at_each_step(
        |registry, _| {
            let end = Arc::clone(&ended);
            signals.push(thread::spawn(move || registry.interrupt(|| end.store(true, Ordering::SeqCst))));
            // Long enough for it to do what it must not.
            thread::sleep(Duration::from_millis(10));
            assert!(!ended.load(Ordering::SeqCst));
            Ok(())
        },
        |way, folder, published| {
            published.unwrap();
            assert_eq!(whole(&folder.join("out")).as_deref(), Some("new"), "{way:?}");
            assert_eq!(names(folder), ["out"], "{way:?}");
        },
    );
    signals.into_iter().for_each(|signal| signal.join().unwrap());
    assert!(!ended.load(Ordering::SeqCst), "it came too late");
}

#[test]
fn a_signal_before_leaves_the_old_one() {
    for way in WAYS {
        let Setting { folder, draft, registry, .. } = Setting::new(way);
        let mut ended = false;
        registry.interrupt(|| ended = true);
        assert!(ended && !draft.folder().exists(), "{way:?}");
        assert_eq!(whole(&folder.path().join("out")).as_deref(), old(way), "{way:?}");
    }
}

/// A copy of a folder, as a process leaves it that is killed.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(io::Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn what_is_killed_is_made_good_by_the_next_run() {
    let left = tempfile::tempdir().unwrap();
    let place = left.path().join("place");
    at_each_step(
        |_, folder| {
            copy(folder, &place);
            Ok(())
        },
        |way, _, published| {
            published.unwrap();
            let target = place.join("out");
            // Whatever has a manifest is whole, also while nobody has cleaned up.
            let found = whole(&target);
            assert!(found.is_none() || found.as_deref() == old(way), "{way:?}");
            let kind = if matches!(way, Way::Mount) { Kind::Mount } else { Kind::Folder };
            for run in 0..2 {
                Place::of_kind(target.clone(), target.clone(), kind).unwrap();
                assert_eq!(whole(&target).as_deref(), old(way), "{way:?}, run {run}");
                let expected = if old(way).is_some() { vec!["out"] } else { Vec::new() };
                assert_eq!(names(&place), expected, "{way:?}");
                if old(way).is_some() {
                    assert_eq!(names(&target), ["config.json", "m", "model.onnx", "old.txt", MANIFEST], "{way:?}");
                }
            }
            fs::remove_dir_all(&place).unwrap();
        },
    );
}

#[test]
fn a_kill_after_the_last_step_leaves_the_new_one() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("out");
    artifact(&target, "new");
    let draft = target.join(".planish-0123456789abcdef");
    fs::create_dir(&draft).unwrap();
    artifact(&entries_aside(&draft), "old");
    Place::of_kind(target.clone(), target.clone(), Kind::Mount).unwrap();
    assert_eq!(whole(&target).as_deref(), Some("new"));
    assert_eq!(names(&target), ["config.json", "m", "model.onnx", "new.txt", MANIFEST]);
}

#[test]
fn what_a_mount_has_in_its_root_stays() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("out");
    fs::create_dir_all(target.join("lost+found")).unwrap();
    let publish = |force: bool| {
        let place = Place::of_kind(target.clone(), target.clone(), Kind::Mount)?;
        place.check_replaceable(force)?;
        let draft = Draft::create_at(Box::leak(Box::new(Registry::new())), place, force)?;
        artifact(draft.folder(), "new");
        // Another process is at it.
        let other = Draft::create_at(Box::leak(Box::new(Registry::new())), self::place(&target), force)?;
        draft.publish()?;
        assert!(other.folder().is_dir());
        Ok::<_, anyhow::Error>(())
    };
    publish(false).unwrap();
    publish(false).unwrap();
    let all = ["config.json", "lost+found", "m", "model.onnx", "new.txt", MANIFEST];
    assert_eq!(names(&target), all);
    fs::write(target.join("thesis"), "years").unwrap();
    let error = publish(false).unwrap_err().to_string();
    assert!(error.contains("not written by planish: thesis;") && error.contains("--force"), "{error}");
    publish(true).unwrap();
    assert_eq!(names(&target), all);
}

fn place(target: &Path) -> Place {
    Place::of_kind(target.to_owned(), target.to_owned(), Kind::Mount).unwrap()
}

#[test]
fn without_exchange_folders_are_replaced_in_two_steps() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("out");
    let draft = Draft::create(&target, true).unwrap();
    marked(draft.folder().to_owned(), "new");
    let step = &mut || Ok(());
    assert_eq!(draft.replace_in_two_steps(step).unwrap(), None, "there is nothing to replace");
    marked(target.clone(), "old");
    let aside = draft.replace_in_two_steps(step).unwrap().unwrap();
    assert_eq!(fs::read_to_string(aside.join("mark")).unwrap(), "old");
    assert_eq!(fs::read_to_string(target.join("mark")).unwrap(), "new");
}

#[test]
fn a_kill_between_the_two_steps_is_made_good() {
    let place = tempfile::tempdir().unwrap();
    let (target, left) = (place.path().join("out"), ".out.planish-0123456789abcdef");
    marked(place.path().join(left), "unfinished");
    marked(place.path().join(format!("{left}.old")), "old");
    let error = Draft::create(&target, false).unwrap_err();
    assert!(error.to_string().contains("was not written by planish"), "{error}");
    assert_eq!(fs::read_to_string(target.join("mark")).unwrap(), "old");
    assert!(Draft::create(&target, false).is_err());
    assert_eq!(names(place.path()), ["out"]);
    // A kill after both steps.
    marked(place.path().join(format!("{left}.old")), "older");
    assert!(Draft::create(&target, false).is_err());
    assert_eq!((names(place.path()), names(&target)), (vec!["out".to_owned()], vec!["mark".to_owned()]));
    // A kill while a draft was removed.
    marked(place.path().join(format!("{left}.removed")), "half");
    assert!(Draft::create(&target, false).is_err());
    assert_eq!(names(place.path()), ["out"]);
}

#[test]
fn drafts_of_the_living_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("out");
    let first = Draft::create(&target, false).unwrap();
    // As between the two steps.
    marked(folder_aside(first.folder()), "old");
    let second = Draft::create(&target, false).unwrap();
    assert!(first.folder().is_dir() && folder_aside(first.folder()).is_dir() && !target.exists());
    assert_ne!(first.folder(), second.folder());
    assert_eq!(second.publish().unwrap(), target);
    drop(first);
    drop(Draft::create(&target, false).unwrap());
    assert_eq!(names(place.path()), ["out"]);
}

/// The folder of the system for temporary files is everybody's: what has the name there is no obstacle.
#[test]
fn temporary_folders_have_names_of_their_own() {
    let purpose = format!("planish-test-{}", std::process::id());
    let taken = std::env::temp_dir().join(&purpose);
    fs::write(&taken, "of another").unwrap();
    let [one, two] = [(); 2].map(|()| Draft::temporary(&purpose).unwrap());
    assert!(one.folder().is_dir() && two.folder().is_dir() && one.folder() != two.folder());
    let folders = [&one, &two].map(|draft| draft.folder().to_owned());
    drop((one, two));
    assert!(folders.iter().all(|folder| !folder.exists()));
    assert_eq!(fs::read_to_string(&taken).unwrap(), "of another");
    fs::remove_file(taken).unwrap();
}
