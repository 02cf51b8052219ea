//! Leaves steps out of a scenario as long as it still shows a difference.
//!
//! In halves first, then in smaller parts, at last one by one. What a step removed made possible (a job, a
//! client) is simply missing then, on both servers.

use super::scenario::Step;

/// The steps that are left, once none of them can be left out or `fails` refuses to try any more (`None`).
pub fn shorten(steps: &[Step], mut fails: impl FnMut(&[Step]) -> Option<bool>) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let mut part = steps.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < steps.len() {
            let end = (at + part).min(steps.len());
            let without: Vec<Step> = steps[..at].iter().chain(&steps[end..]).cloned().collect();
            match fails(&without) {
                None => return steps,
                Some(true) => {
                    steps = without;
                    shorter = true;
                }
                Some(false) => at = end,
            }
        }
        // One by one again after a success: what was needed before may not be needed now.
        part = if part == 1 && !shorter { 0 } else { (part / 2).max(1) };
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(numbers: impl IntoIterator<Item = u64>) -> Vec<Step> {
        numbers.into_iter().map(Step::At).collect()
    }

    #[test]
    fn steps_that_matter_are_left() {
        let all = steps(0..100);
        let needed = [Step::At(3), Step::At(77)];
        let left = shorten(&all, |steps| Some(needed.iter().all(|step| steps.contains(step))));
        assert_eq!(left, needed);
    }

    #[test]
    fn nothing_is_left_out_of_what_needs_all() {
        let all = steps(0..7);
        assert_eq!(shorten(&all, |steps| Some(steps.len() == 7)), all);
    }

    #[test]
    fn end_of_patience_keeps_what_fails() {
        let all = steps(0..64);
        let mut tries = 5;
        let left = shorten(&all, |steps| {
            tries -= 1;
            (tries > 0).then_some(steps.contains(&Step::At(60)))
        });
        assert!(left.contains(&Step::At(60)) && left.len() < 64);
    }
}
