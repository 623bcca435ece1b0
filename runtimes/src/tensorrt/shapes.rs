//! Which profile of an engine takes the shapes of a run.

use super::options::Profile;

/// The profile that covers these shapes. Of several it is the one whose usual sizes are nearest, for which its kernels were
/// chosen; of equally near ones the first. It does not depend on earlier runs.
///
/// # Errors
/// The axis that is out of range, with the range of each profile.
pub(super) fn covering(profiles: &[Profile], shapes: &[(&str, &[usize])]) -> Result<usize, String> {
    let misses: Vec<Option<String>> = profiles.iter().map(|profile| outside(profile, shapes)).collect();
    let covering = misses.iter().zip(profiles).enumerate().filter(|(_, (miss, _))| miss.is_none());
    let distances = covering.map(|(index, (_, profile))| (index, distance(profile, shapes)));
    if let Some((nearest, _)) = distances.min_by(|(_, a), (_, b)| a.total_cmp(b)) {
        return Ok(nearest);
    }
    let misses = misses.into_iter().flatten().enumerate();
    let text: Vec<String> = misses.map(|(index, miss)| format!("profile {index}: {miss}")).collect();
    Err(match text.as_slice() {
        [] => "the engine has no profile".to_owned(),
        [..] => format!("no profile of the engine covers the shapes: {}", text.join("; ")),
    })
}

/// How far shapes are from the usual ones of a profile: the sum of the ratios of their sizes, as logarithms.
fn distance(profile: &Profile, shapes: &[(&str, &[usize])]) -> f64 {
    let ratios = profile.inputs.iter().flat_map(|range| {
        let shape = shapes.iter().find(|(name, _)| *name == range.name).map_or(&[][..], |(_, shape)| *shape);
        shape.iter().zip(&range.opt).map(|(size, opt)| ((*size as f64 + 1.0) / (*opt as f64 + 1.0)).ln().abs())
    });
    ratios.sum()
}

/// The first axis of an input that a profile does not cover.
fn outside(profile: &Profile, shapes: &[(&str, &[usize])]) -> Option<String> {
    profile.inputs.iter().find_map(|range| {
        let (name, shape) = shapes.iter().find(|(name, _)| *name == range.name)?;
        let sizes = shape.iter().zip(&range.min).zip(&range.max).enumerate();
        let mut out = sizes
            .filter(|(_, ((size, min), max))| !i64::try_from(**size).is_ok_and(|size| (**min..=**max).contains(&size)));
        let (axis, ((size, min), max)) = out.next()?;
        Some(format!("axis {axis} of `{name}` is {size}, and the profile takes {min} to {max}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensorrt::InputRange;

    fn profile(min: i64, opt: i64, max: i64) -> Profile {
        let range = InputRange { name: "ids".to_owned(), min: vec![1, min], opt: vec![1, opt], max: vec![8, max] };
        Profile { inputs: vec![range] }
    }

    #[test]
    fn the_nearest_profile_that_covers_the_shapes_is_taken() {
        let profiles = [profile(16, 256, 512), profile(1, 32, 128), profile(1, 32, 128)];
        let covering = |length: usize| covering(&profiles, &[("ids", &[1, length])]);
        for (length, expected) in [(1, 1), (16, 1), (64, 1), (100, 0), (128, 0), (300, 0)] {
            assert_eq!(covering(length), Ok(expected), "{length}");
        }
    }

    #[test]
    fn shapes_that_no_profile_covers_are_named_with_their_ranges() {
        let profiles = [profile(16, 16, 512), profile(1, 1, 1)];
        assert_eq!(
            covering(&profiles, &[("ids", &[1, 700])]).unwrap_err(),
            "no profile of the engine covers the shapes: profile 0: axis 1 of `ids` is 700, and the profile takes 16 to \
             512; profile 1: axis 1 of `ids` is 700, and the profile takes 1 to 1"
        );
        assert_eq!(covering(&[], &[]).unwrap_err(), "the engine has no profile");
    }
}
