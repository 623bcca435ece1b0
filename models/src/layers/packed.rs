//! Images of any shape in one row of patches, as `transformers/vision_utils.py` has them: one image after the other, an image frame by
//! frame, a frame in squares of patches row by row, and a square row by row.

use planish_ir::ops::{BinaryKind, Cast, Concat, CumSum, Iota, Reduce, ReduceKind, Select, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::experts::LEAST;
use crate::layers::patches::dim;
use crate::layers::rope::Angles;
use crate::names;

const MODULE: &str = "patches";

fn at(name: &str) -> String {
    format!("{MODULE}.{name}")
}

/// Where each patch is: all i64[patches].
pub(crate) struct Places {
    /// The side of a square.
    side: usize,
    /// The patch that its frame begins with.
    frame: ValueId,
    /// Rows and columns of squares.
    square: [ValueId; 2],
    /// The columns of squares that its image has.
    squares_wide: ValueId,
    /// Row and column of the patch.
    place: [ValueId; 2],
    /// Rows and columns of patches that its image has.
    sides: [ValueId; 2],
}

/// The number of patches, of squares of a side.
pub(crate) fn count(side: usize) -> Dim {
    Dim::symbol(names::PLACES).checked_mul(&dim(side * side)).unwrap_or_default()
}

/// Integers and what is computed of them.
struct Integers<'b, 'a> {
    b: &'b mut Builder<'a>,
}

impl Integers<'_, '_> {
    fn number(&mut self, number: usize) -> ValueId {
        // Exact: sides are far below 2^53.
        self.b.graph.add_scalar(&at(&format!("number.{number}")), DType::I64, number as f64)
    }

    fn binary(&mut self, kind: BinaryKind, x: [ValueId; 2], name: &str) -> Result<ValueId, ModelError> {
        self.b.binary(kind, x, &at(name))
    }

    fn with(&mut self, kind: BinaryKind, x: ValueId, number: usize, name: &str) -> Result<ValueId, ModelError> {
        let number = self.number(number);
        self.binary(kind, [x, number], name)
    }

    /// The quotient, and the rest.
    fn divided(&mut self, x: ValueId, by: ValueId, names: [&str; 2]) -> Result<[ValueId; 2], ModelError> {
        let quotient = self.binary(BinaryKind::Div, [x, by], names[0])?;
        let whole = self.binary(BinaryKind::Mul, [quotient, by], &format!("{}.whole", names[0]))?;
        Ok([quotient, self.binary(BinaryKind::Sub, [x, whole], names[1])?])
    }
}

impl Places {
    /// Of images whose frames, rows and columns of patches are i64[images, 3], in squares of a side. Patches beyond those of all images
    /// are a frame of their own.
    pub(crate) fn new(b: &mut Builder<'_>, grid: ValueId, side: usize) -> Result<Self, ModelError> {
        let images = b.graph.ty(grid).shape[0].clone();
        let patches = count(side);
        let number = b.emit(Iota { dtype: DType::I64, length: patches.clone() }, &at("number"))?;
        let column = b.reshape(number, [patches, dim(1)], &at("column"))?;
        let mut sides = [grid; 3];
        for (axis, name) in ["frames", "rows", "columns"].into_iter().enumerate() {
            let slice = Slice { x: grid, axis: 1, start: dim(axis), end: dim(axis + 1) };
            let slice = b.emit(slice, &at(&format!("{name}.slice")))?;
            sides[axis] = b.reshape(slice, [dim(1), images.clone()], &at(name))?;
        }
        let [frames, rows, columns] = sides;
        let mut i = Integers { b };
        let area = i.binary(BinaryKind::Mul, [rows, columns], "area")?;
        let counts = i.binary(BinaryKind::Mul, [frames, area], "counts")?;
        let ends = i.b.emit(CumSum { x: counts, axis: 1 }, &at("ends"))?;
        let starts = i.binary(BinaryKind::Sub, [ends, counts], "starts")?;
        let begun = i.binary(BinaryKind::GreaterOrEqual, [column, starts], "begun")?;
        let open = i.binary(BinaryKind::Less, [column, ends], "open")?;
        let inside = i.binary(BinaryKind::And, [begun, open], "inside")?;
        let inside = i.b.emit(Cast { x: inside, to: DType::I64 }, &at("is_of_image"))?;
        let of_patch = |i: &mut Integers<'_, '_>, x: ValueId, name: &str| {
            let x = i.binary(BinaryKind::Mul, [inside, x], &format!("{name}.of_images"))?;
            i.b.emit(Reduce { kind: ReduceKind::Sum, x, axes: vec![1], keep: false }, &at(name))
        };
        let start = of_patch(&mut i, starts, "start")?;
        // No image has a side of 0, but none of these divides by it.
        let of_patch_least = |i: &mut Integers<'_, '_>, x: ValueId, name: &str| {
            let x = of_patch(i, x, &format!("{name}.given"))?;
            i.with(BinaryKind::Max, x, side, name)
        };
        let height = of_patch_least(&mut i, rows, "height")?;
        let width = of_patch_least(&mut i, columns, "width")?;
        let area = i.binary(BinaryKind::Mul, [height, width], "frame.area")?;
        let within = i.binary(BinaryKind::Sub, [number, start], "within")?;
        let [_, within] = i.divided(within, area, ["frame.number", "frame.within"])?;
        let frame = i.binary(BinaryKind::Sub, [number, within], "frame")?;
        let of_square = i.number(side * side);
        let [square, within] = i.divided(within, of_square, ["square", "square.within"])?;
        let of_row = i.number(side);
        let [row, column] = i.divided(within, of_row, ["square.row", "square.column"])?;
        let [squares_wide, _] = i.divided(width, of_row, ["squares_wide", "squares_wide.rest"])?;
        let [down, across] = i.divided(square, squares_wide, ["square.down", "square.across"])?;
        let place = |i: &mut Integers<'_, '_>, square, own, name: &str| {
            let first = i.with(BinaryKind::Mul, square, side, &format!("{name}.first"))?;
            i.binary(BinaryKind::Add, [first, own], name)
        };
        let row = place(&mut i, down, row, "place.row")?;
        let column = place(&mut i, across, column, "place.column")?;
        let (square, place, sides) = ([down, across], [row, column], [height, width]);
        Ok(Self { side, frame, square, squares_wide, place, sides })
    }

    /// The angles of rows and of columns, half of the pairs of a head each: [1, patches, pairs].
    pub(crate) fn angles(&self, b: &mut Builder<'_>, head: usize, theta: f64) -> Result<Angles, ModelError> {
        let pairs = head / 4;
        let frequencies: Vec<f64> = (0..pairs).map(|i| theta.powf(-(i as f64) / pairs as f64)).collect();
        let frequencies = Weight::numbers(DType::F32, vec![pairs], &frequencies);
        let frequencies = frequencies.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
        let frequencies = b.graph.add_weight("rotary_pos_emb.inv_freq", frequencies, Origin::Unknown);
        let mut parts = Vec::new();
        for (x, name) in self.place.into_iter().zip(["rows", "columns"]) {
            let at = |part: &str| format!("rotary_pos_emb.{name}.{part}");
            let x = b.emit(Cast { x, to: DType::F32 }, &at("number"))?;
            let x = b.reshape(x, [dim(1), count(self.side), dim(1)], &at("column"))?;
            parts.push(b.binary(BinaryKind::Mul, [x, frequencies], &at("angles"))?);
        }
        let x = b.emit(Concat { parts, axis: 2 }, "rotary_pos_emb.angles")?;
        let mut turn = |kind, name: &str| b.emit(Unary { kind, x }, &format!("rotary_pos_emb.{name}"));
        Ok(Angles::stored(turn(UnaryKind::Cos, "cos")?, turn(UnaryKind::Sin, "sin")?))
    }

    /// What is added to scores of patches of other frames: [1, 1, patches, patches].
    pub(crate) fn bias(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        of_others(b, self.frame, self.side, &at("attention"))
    }

    /// The same of patches of other windows, of so many rows and columns of squares.
    pub(crate) fn window_bias(&self, b: &mut Builder<'_>, window: usize) -> Result<ValueId, ModelError> {
        let mut i = Integers { b };
        let first = |i: &mut Integers<'_, '_>, x, name: &str| {
            let number = i.with(BinaryKind::Div, x, window, &format!("{name}.number"))?;
            i.with(BinaryKind::Mul, number, window, name)
        };
        let down = first(&mut i, self.square[0], "window.down")?;
        let across = first(&mut i, self.square[1], "window.across")?;
        let before = i.binary(BinaryKind::Mul, [down, self.squares_wide], "window.rows")?;
        let square = i.binary(BinaryKind::Add, [before, across], "window.square")?;
        let before = i.with(BinaryKind::Mul, square, self.side * self.side, "window.before")?;
        let window = i.binary(BinaryKind::Add, [self.frame, before], "window")?;
        of_others(b, window, self.side, &at("window_attention"))
    }

    /// The vectors of a square table of positions, so many on a side, between whose places those of images lie: the outermost are at the
    /// outermost places. The result is [patches, features].
    pub(crate) fn interpolated(
        &self,
        b: &mut Builder<'_>,
        table: &str,
        side: usize,
        features: Size,
    ) -> Result<ValueId, ModelError> {
        const NAME: &str = "pos_embed";
        let mut taps = Vec::new();
        for (axis, name) in ["rows", "columns"].into_iter().enumerate() {
            let at = |part: &str| format!("{name}.{part}");
            let mut i = Integers { b };
            let reach = i.with(BinaryKind::Mul, self.place[axis], side - 1, &at("reach"))?;
            let steps = {
                let one = i.number(1);
                let steps = i.binary(BinaryKind::Sub, [self.sides[axis], one], &at("steps.all"))?;
                i.binary(BinaryKind::Max, [steps, one], &at("steps"))?
            };
            let [first, rest] = i.divided(reach, steps, [&at("first"), &at("rest")])?;
            let first = i.with(BinaryKind::Min, first, side - 1, &at("first.last"))?;
            let second = i.with(BinaryKind::Add, first, 1, &at("second.next"))?;
            let second = i.with(BinaryKind::Min, second, side - 1, &at("second"))?;
            let rest = b.emit(Cast { x: rest, to: DType::F32 }, &self::at(&at("rest.number")))?;
            let steps = b.emit(Cast { x: steps, to: DType::F32 }, &self::at(&at("steps.number")))?;
            let share = b.binary(BinaryKind::Div, [rest, steps], &self::at(&at("share")))?;
            let one = b.graph.add_weight(&self::at(&at("one")), Weight::scalar(DType::F32, 1.0), Origin::Unknown);
            let other = b.binary(BinaryKind::Sub, [one, share], &self::at(&at("share.first")))?;
            taps.push([(first, other), (second, share)]);
        }
        let count_of_table = Size::derived(side * side, "num_position_embeddings");
        let mut sum = None;
        for (number, (row, column)) in
            taps[0].iter().flat_map(|row| taps[1].iter().map(move |column| (*row, *column))).enumerate()
        {
            let at = |part: &str| format!("{NAME}.{number}.{part}");
            let before = {
                let mut i = Integers { b };
                let before = i.with(BinaryKind::Mul, row.0, side, &at("row"))?;
                i.binary(BinaryKind::Add, [before, column.0], &at("ids"))?
            };
            let vectors = b.embedding(before, table, count_of_table, features)?;
            let share = b.binary(BinaryKind::Mul, [row.1, column.1], &self::at(&at("share")))?;
            let share = b.reshape(share, [count(self.side), dim(1)], &self::at(&at("share.column")))?;
            let part = b.binary(BinaryKind::Mul, [vectors, share], &self::at(&at("part")))?;
            sum = Some(match sum {
                None => part,
                Some(sum) => b.add(sum, part, &self::at(&at("sum")))?,
            });
        }
        Ok(sum.unwrap_or_else(|| unreachable!("there are four parts")))
    }
}

/// The least number for patches of another number, and 0 for others: [1, 1, patches, patches].
fn of_others(b: &mut Builder<'_>, number: ValueId, side: usize, name: &str) -> Result<ValueId, ModelError> {
    let within = |part: &str| format!("{name}.{part}");
    let [row, column] = [[dim(1), count(side)], [count(side), dim(1)]];
    let keys = b.reshape(number, row, &within("keys"))?;
    let queries = b.reshape(number, column, &within("queries"))?;
    let condition = b.binary(BinaryKind::Equal, [queries, keys], &within("same"))?;
    let mut scalar = |number: f64, part: &str| {
        b.graph.add_weight(&within(part), Weight::scalar(DType::F32, number), Origin::Unknown)
    };
    let (zero, least) = (scalar(0.0, "zero"), scalar(LEAST, "least"));
    let bias = b.emit(Select { condition, a: zero, b: least }, &within("bias"))?;
    b.reshape(bias, [dim(1), dim(1), count(side), count(side)], name)
}
