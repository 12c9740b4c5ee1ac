//! How it went, for people and for the test runner.

/// Of one cell, or one story.
#[derive(Clone)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) failure: Option<String>,
    /// Not run: the kernel lacks this feature.
    pub(crate) is_skip: bool,
}

impl Outcome {
    /// As printed while others are running: its duration, or its share of a common duration.
    pub(crate) fn line(&self, seconds: f64) -> String {
        let word = match &self.failure {
            None => "ok",
            Some(_) if self.is_skip => "skipped",
            Some(_) => "FAILED",
        };
        format!("{word:<7} {seconds:>6.1} s  {}", self.name)
    }
}

/// Prints the failures and the closing line, in the format of cargo's test runner; true on success.
/// Skipped items count as success only with `skips_pass`: otherwise a kernel's lost module would go
/// unnoticed.
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
