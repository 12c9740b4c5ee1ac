//! How it went, for people and for the test runner.

/// Of one cell, or one story.
#[derive(Clone)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) failure: Option<String>,
    /// It was not tried: the kernel lacks what that one says.
    pub(crate) is_skip: bool,
}

impl Outcome {
    /// As it is told while others are still to come: it took so long, or this is its share of what
    /// several took together.
    pub(crate) fn line(&self, seconds: f64) -> String {
        let word = match &self.failure {
            None => "ok",
            Some(_) if self.is_skip => "skipped",
            Some(_) => "FAILED",
        };
        format!("{word:<7} {seconds:>6.1} s  {}", self.name)
    }
}

/// Tells what failed, and the closing line, as cargo's test runner writes it; true if all is well.
/// What was skipped is well only if `skips_pass`: else nobody would hear of a kernel that has lost
/// a module.
pub(crate) fn close(outcomes: &[Outcome], skips_pass: bool) -> bool {
    let (mut failed, mut ignored) = (0, 0);
    for Outcome { name, failure, is_skip } in outcomes {
        if let Some(failure) = failure {
            *(if *is_skip && skips_pass { &mut ignored } else { &mut failed }) += 1;
            println!("\n{name}: {failure}");
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let passed = outcomes.len() - failed - ignored;
    println!("\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored");
    failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_fails_unless_it_was_allowed() {
        let skip = || vec![Outcome { name: "a".into(), failure: Some("b".into()), is_skip: true }];
        assert!(!close(&skip(), false));
        assert!(close(&skip(), true));
    }
}
