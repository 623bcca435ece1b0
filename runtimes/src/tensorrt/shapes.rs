//! Which profile of an engine takes the shapes of a run.

use super::options::Profile;

/// The profile that covers these shapes: the present one if it does, since another one costs time; else the first one.
///
/// # Errors
/// The axis that is out of range, with the range of each profile.
pub(super) fn covering(profiles: &[Profile], present: usize, shapes: &[(&str, &[usize])]) -> Result<usize, String> {
    let mut order: Vec<usize> = (0..profiles.len()).collect();
    order.sort_by_key(|index| *index != present);
    let mut misses = Vec::new();
    for index in order {
        match outside(&profiles[index], shapes) {
            None => return Ok(index),
            Some(miss) => misses.push((index, miss)),
        }
    }
    misses.sort_by_key(|(index, _)| *index);
    let text: Vec<String> = misses.into_iter().map(|(index, miss)| format!("profile {index}: {miss}")).collect();
    Err(match text.as_slice() {
        [] => "the engine has no profile".to_owned(),
        [..] => format!("no profile of the engine covers the shapes: {}", text.join("; ")),
    })
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

    fn profile(min: i64, max: i64) -> Profile {
        let range = InputRange { name: "ids".to_owned(), min: vec![1, min], opt: vec![1, min], max: vec![8, max] };
        Profile { inputs: vec![range] }
    }

    #[test]
    fn the_present_profile_is_kept_where_it_covers_the_shapes() {
        let profiles = [profile(16, 512), profile(1, 128)];
        assert_eq!(covering(&profiles, 0, &[("ids", &[1, 64])]), Ok(0));
        assert_eq!(covering(&profiles, 1, &[("ids", &[1, 64])]), Ok(1));
        assert_eq!(covering(&profiles, 1, &[("ids", &[1, 300])]), Ok(0));
        assert_eq!(covering(&profiles, 0, &[("ids", &[1, 1])]), Ok(1));
    }

    #[test]
    fn shapes_that_no_profile_covers_are_named_with_their_ranges() {
        let profiles = [profile(16, 512), profile(1, 1)];
        assert_eq!(
            covering(&profiles, 0, &[("ids", &[1, 700])]).unwrap_err(),
            "no profile of the engine covers the shapes: profile 0: axis 1 of `ids` is 700, and the profile takes 16 to \
             512; profile 1: axis 1 of `ids` is 700, and the profile takes 1 to 1"
        );
        assert_eq!(covering(&[], 0, &[]).unwrap_err(), "the engine has no profile");
    }
}
