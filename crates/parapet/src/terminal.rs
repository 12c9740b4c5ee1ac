//! Output of reports, hints and questions.
//!
//! Rules: data goes to standard output, everything else to standard error. Colour appears only on a
//! terminal, unless the user disables it. Questions need a terminal to answer on. With `--json`,
//! standard output carries only JSON, errors included.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::api::{ErrorView, Report};
use crate::failure::{Failure, Id, Result};
use crate::flags::{Colour, Global};
use crate::page::{OutputOptions, Page, Style, shown};

/// Width if the terminal does not report it.
const USUAL_COLUMNS: usize = 80;

/// The schema of errors.
pub(crate) const ERROR_SCHEMA: &str = "parapet/error/1";

/// The user interface of the program.
pub(crate) struct Terminal {
    json: bool,
    quiet: bool,
    options: OutputOptions,
    columns_out: Option<usize>,
    columns_err: Option<usize>,
    colour_out: bool,
    colour_err: bool,
    attended: bool,
    moving: bool,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema: &'static str,
    data: &'a T,
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    schema: &'static str,
    error: &'a ErrorView,
}

/// The answer that a confirmation needs.
pub(crate) enum Answer<'a> {
    /// `y` or `yes`, in any case.
    Yes,
    /// The name of the array.
    Name(&'a str),
}

impl Answer<'_> {
    fn is_given(&self, typed: &str) -> bool {
        match self {
            Answer::Yes => ["y", "yes"].iter().any(|yes| typed.eq_ignore_ascii_case(yes)),
            Answer::Name(name) => typed == *name,
        }
    }
}

impl Terminal {
    /// Configures the output from the flags and the environment.
    pub(crate) fn new(global: &Global) -> Terminal {
        let (out, err) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colour = |terminal: bool| match global.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && !plain,
        };
        Terminal {
            json: global.json,
            quiet: global.quiet,
            options: OutputOptions {
                exact: global.bytes,
                si: global.si,
                verbose: global.verbose > 0,
                columns: None,
            },
            columns_out: out.then(|| columns_of(std::io::stdout())),
            columns_err: err.then(|| columns_of(std::io::stderr())),
            colour_out: colour(out) && !global.json,
            colour_err: colour(err),
            attended: err && std::io::stdin().is_terminal() && !global.json,
            moving: err && !global.json && !plain,
        }
    }

    /// Returns true if standard output carries JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns true if hints and progress are off.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns true if standard error can redraw a line.
    pub(crate) fn is_moving(&self) -> bool {
        self.moving && !self.quiet
    }

    /// Prints a report.
    pub(crate) fn report<R: Report>(&self, report: &R) {
        if self.json {
            return print(&json_of(report));
        }
        let mut page = self.page();
        report.text(&mut page);
        print(page.into_text().trim_end_matches('\n'));
    }

    /// Prints one line of a stream: JSON lines, or text.
    pub(crate) fn stream<R: Report>(&self, report: &R) {
        self.report(report);
    }

    /// Clears the screen before a report that replaces the one before; elsewhere they follow each
    /// other.
    pub(crate) fn clear(&self) {
        if self.columns_out.is_some() && !self.json {
            let _ = write!(std::io::stdout(), "\x1b[H\x1b[2J");
        }
    }

    /// Creates an empty page for standard output.
    pub(crate) fn page(&self) -> Page {
        let columns = self.columns_out;
        Page::new(self.colour_out, OutputOptions { columns, ..self.options })
    }

    /// Prints plain data: completions, a schema.
    pub(crate) fn data(&self, text: &str) {
        print(text.trim_end_matches('\n'));
    }

    /// Prints a report that is not the answer: a plan before a question.
    pub(crate) fn preview<R: Report>(&self, report: &R) {
        if self.json || self.quiet {
            return;
        }
        let columns = self.columns_err;
        let options = OutputOptions { columns, ..self.options };
        let mut page = Page::new(self.colour_err, options);
        report.text(&mut page);
        let _ = std::io::stderr().lock().write_all(page.into_text().as_bytes());
    }

    /// Prints a hint.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{}", shown(text.as_ref()));
        }
    }

    /// Draws a line that the next call replaces; `bar` only if it fits.
    pub(crate) fn draw(&self, bar: &str, text: &str) {
        if self.is_moving() {
            // Leave the last column empty: terminals differ in how they treat a full line.
            let columns = self.columns_err.unwrap_or(USUAL_COLUMNS);
            let line = fitted(&shown(bar), &shown(text), columns.saturating_sub(1));
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Clears the drawn line.
    pub(crate) fn undraw(&self) {
        if self.is_moving() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Prints a failure; returns the exit status.
    pub(crate) fn fail(&self, failure: &Failure) -> ExitCode {
        let exit = failure.exit() as u8;
        if self.json {
            print(&json_of_failure(failure));
            return ExitCode::from(exit);
        }
        let mut page = Page::new(self.colour_err, self.options);
        page.styled(Style::Bad, format!("parapet: {} [{}]", failure.message, failure.id));
        if !failure.action.is_empty() {
            page.line(format!("  {}", failure.action));
        }
        let _ = std::io::stderr().lock().write_all(page.into_text().as_bytes());
        ExitCode::from(exit)
    }

    /// Asks for confirmation, unless the user already gave it.
    ///
    /// # Errors
    /// `Confirmation` if the user gives any other answer, or standard input is no terminal.
    pub(crate) fn confirm(&self, yes: bool, question: &str, answer: &Answer<'_>) -> Result<()> {
        if yes {
            return Ok(());
        }
        if !self.attended {
            let action = "read the plan (--dry-run), then repeat it with --yes";
            return Err(Failure::new(Id::Confirmation, "no terminal to confirm at", action));
        }
        let how = match answer {
            Answer::Yes => "[y/N]".into(),
            Answer::Name(name) => format!("Type {name} to go on:"),
        };
        let _ = write!(std::io::stderr(), "{} {} ", shown(question), shown(&how));
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.is_ok() && answer.is_given(line.trim()) {
            return Ok(());
        }
        Err(Failure::new(Id::Confirmation, "not confirmed", "nothing was changed"))
    }
}

/// Returns the width of a terminal: COLUMNS, or else what the terminal reports.
fn columns_of(terminal: impl std::os::fd::AsFd) -> usize {
    let chosen = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let chosen = chosen.filter(|&columns| columns > 0);
    let reported = || os::terminal_columns(terminal).map(usize::from);
    chosen.or_else(reported).unwrap_or(USUAL_COLUMNS)
}

/// Shortens a line: first drops the bar, then the last parts.
fn fitted(bar: &str, text: &str, columns: usize) -> String {
    let whole = if bar.is_empty() { text.to_owned() } else { format!("{bar} {text}") };
    if whole.chars().count() <= columns {
        return whole;
    }
    let mut part = text;
    while part.chars().count() > columns {
        let Some((before, _)) = part.rsplit_once(", ") else {
            return part.chars().take(columns).collect();
        };
        part = before;
    }
    part.to_owned()
}

/// Formats a report as JSON, in its envelope.
pub(crate) fn json_of<R: Report>(report: &R) -> String {
    let envelope = Envelope { schema: R::SCHEMA, data: report };
    serde_json::to_string(&envelope).expect("reports are made of strings, numbers and lists")
}

/// Formats a failure as JSON.
pub(crate) fn json_of_failure(failure: &Failure) -> String {
    json_of_ended(failure, failure.exit() as u8)
}

/// Formats a failure as JSON, for a verb with its own exit statuses.
pub(crate) fn json_of_ended(failure: &Failure, exit_code: u8) -> String {
    let error = ErrorView {
        id: failure.id.to_string(),
        message: failure.message.clone(),
        action: failure.action.clone(),
        exit_code,
    };
    let envelope = ErrorEnvelope { schema: ERROR_SCHEMA, error: &error };
    serde_json::to_string(&envelope).expect("an error is made of strings and a number")
}

/// Prints text; a closed pipe is not an error: `parapet list | head`.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n"));
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn what_is_drawn_fits_the_terminal() {
        let (bar, text) = ("[##--]", "rebuild 50.0 % (1 GiB of 2 GiB), 90 MiB/s, 11 s left");
        assert_eq!(fitted(bar, text, 80), format!("{bar} {text}"));
        assert_eq!(fitted(bar, text, 55), text);
        assert_eq!(fitted(bar, text, 45), "rebuild 50.0 % (1 GiB of 2 GiB), 90 MiB/s");
        assert_eq!(fitted(bar, text, 33), "rebuild 50.0 % (1 GiB of 2 GiB)");
        assert_eq!(fitted(bar, text, 10), "rebuild 50");
        assert_eq!(fitted(bar, text, 0), "");
    }
}
