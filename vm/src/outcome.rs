//! How it went, for people and for the test runner.

/// Of one cell, or one story.
#[derive(Clone)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) failure: Option<String>,
}

impl Outcome {
    /// As it is told while others are still to come.
    pub(crate) fn line(&self) -> String {
        let word = if self.failure.is_none() { "ok" } else { "FAILED" };
        format!("{word:<7} {}", self.name)
    }
}

/// Tells what failed, and the closing line, as cargo's test runner writes it; true if all is well.
pub(crate) fn close(outcomes: &[Outcome]) -> bool {
    let mut count = 0;
    for Outcome { name, failure } in outcomes {
        if let Some(failure) = failure {
            count += 1;
            println!("\n{name}: {failure}");
        }
    }
    let word = if count == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {} passed; {count} failed", outcomes.len() - count);
    count == 0
}
