//! Waiting until the machine is quiet.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// How long one look at the processor's time takes.
const LOOK: Duration = Duration::from_millis(2);
/// How many looks in a row must see little: a polling thread may be kept off its core for one.
const LOOKS: u32 = 4;

/// The most looks: 2 s.
const MOST_LOOKS: u32 = 1000;

/// Waits until this process uses less than a fifth of a core, for at most some 2 s.
///
/// Idle threads of one session poll for work for a while after a run; they would take cores from
/// the session that is measured next.
pub(crate) fn wait_until_idle() {
    settle(|| {
        let (wall, before) = (Instant::now(), processor_time());
        std::thread::sleep(LOOK);
        processor_time().saturating_sub(before) < wall.elapsed() / 5
    });
}

/// Looks until several looks in a row see little.
fn settle(mut is_idle: impl FnMut() -> bool) {
    let mut quiet = 0;
    for _ in 0..MOST_LOOKS {
        quiet = if is_idle() { quiet + 1 } else { 0 };
        if quiet == LOOKS {
            return;
        }
    }
}

/// The time that all threads of this process have run.
fn processor_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(tv_sec.try_into().unwrap_or(0)) + Duration::from_nanos(tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_busy_look_starts_anew_and_a_busy_machine_is_given_up_on() {
        let looks = |mut busy: Vec<u32>| {
            let mut count = 0;
            settle(|| {
                count += 1;
                busy.pop_if(|at| *at == count).is_none()
            });
            count
        };
        assert_eq!(looks(vec![]), LOOKS);
        assert_eq!(looks(vec![LOOKS]), 2 * LOOKS);
        assert_eq!(looks(vec![3, 1]), 3 + LOOKS);
        assert_eq!(looks((1..=MOST_LOOKS).rev().collect()), MOST_LOOKS);
    }

    #[test]
    fn work_takes_processor_time() {
        let before = processor_time();
        let sum = (0..2_000_000u64).fold(0, |sum: u64, i| std::hint::black_box(sum.wrapping_add(i * i)));
        assert!(sum > 0 && processor_time() > before);
    }
}
