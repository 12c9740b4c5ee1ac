//! Text output: words with colour, tables with aligned columns.
//!
//! Colour never carries information of its own. Control characters in text from disks and sockets
//! are escaped, so that a name cannot steer a terminal.

use std::fmt::Write;

use crate::size::Size;

/// Meaning of a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Neutral.
    Plain,
    /// Normal state.
    Good,
    /// Needs a look.
    Warning,
    /// Needs action.
    Bad,
    /// Less important.
    Faint,
    /// A heading.
    Strong,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31;1",
            Style::Faint => "2",
            Style::Strong => "1",
        }
    }
}

/// Indent of a table, and of the further lines of a folded row.
const INDENT: usize = 2;
const FOLDED_INDENT: usize = 6;
/// Width of the labels of fields, with the gap after them.
const LABEL: usize = 14;

/// Text under construction.
pub(crate) struct Page {
    text: String,
    colour: bool,
    options: OutputOptions,
}

/// Format of sizes, and verbosity.
#[derive(Clone, Copy, Default)]
pub(crate) struct OutputOptions {
    /// Sizes in bytes.
    pub(crate) exact: bool,
    /// Sizes in powers of 1000.
    pub(crate) si: bool,
    /// Verbose output.
    pub(crate) verbose: bool,
    /// Width of the terminal in columns; none if the output is no terminal: then nothing is folded.
    pub(crate) columns: Option<usize>,
}

impl Page {
    /// Creates an empty page, with colour or without.
    pub(crate) fn new(colour: bool, options: OutputOptions) -> Page {
        Page { text: String::new(), colour, options }
    }

    /// Returns the text of the page.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Formats a size in the user's choice of units.
    pub(crate) fn size(&self, bytes: u64) -> String {
        match self.options {
            OutputOptions { exact: true, .. } => bytes.to_string(),
            OutputOptions { si: true, .. } => Size(bytes).in_thousands(),
            _ => Size(bytes).to_string(),
        }
    }

    /// Formats a size in both kinds of units, unless the user chose one.
    pub(crate) fn in_both_units(&self, bytes: u64) -> String {
        match self.options {
            OutputOptions { exact: false, si: false, .. } => {
                format!("{} ({})", Size(bytes), Size(bytes).in_thousands())
            }
            _ => self.size(bytes),
        }
    }

    /// Returns true for verbose output.
    pub(crate) fn is_verbose(&self) -> bool {
        self.options.verbose
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(&shown(text.as_ref()));
        self.text.push('\n');
    }

    /// Adds a line in one colour.
    pub(crate) fn styled(&mut self, style: Style, text: impl AsRef<str>) {
        let text = self.paint(style, text.as_ref());
        self.text.push_str(&text);
        self.text.push('\n');
    }

    /// Adds a text in one colour, folded between words.
    #[cfg(feature = "lab")]
    pub(crate) fn paragraph(&mut self, style: Style, text: impl AsRef<str>) {
        self.folded(text.as_ref(), 0).iter().for_each(|line| self.styled(style, line));
    }

    /// Adds a label and a value; values are aligned.
    pub(crate) fn field(&mut self, label: &str, value: impl AsRef<str>) {
        self.field_in(Style::Plain, label, value);
    }

    /// Adds a label and a value in a colour. Folds the value between words.
    pub(crate) fn field_in(&mut self, style: Style, label: &str, value: impl AsRef<str>) {
        let label = format!("{label:>12}");
        let label = self.paint(Style::Faint, &label);
        for (index, line) in self.folded(value.as_ref(), LABEL).iter().enumerate() {
            let value = self.paint(style, line);
            let label = if index == 0 { label.as_str() } else { "            " };
            self.text.push_str(&format!("{label}  {value}\n"));
        }
    }

    /// Adds a label and a command. Never folds it: a folded command cannot be copied.
    pub(crate) fn command(&mut self, label: &str, command: impl AsRef<str>) {
        let label = self.paint(Style::Faint, &format!("{label:>12}"));
        self.text.push_str(&format!("{label}  {}\n", shown(command.as_ref())));
    }

    /// Cuts a text between words into lines that fit the terminal behind this indent.
    fn folded(&self, text: &str, indent: usize) -> Vec<String> {
        let room = self.options.columns.map_or(usize::MAX, |all| all.saturating_sub(indent).max(1));
        let text = shown(text);
        if text.chars().count() <= room {
            return vec![text];
        }
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.last_mut().expect("there is a first line");
            if line.is_empty() {
                line.push_str(word);
            } else if line.chars().count() + 1 + word.chars().count() <= room {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines
    }

    /// Adds rows with aligned columns; the first row is the heading. The style colours a row's
    /// second column, which is its state. Columns that do not fit the terminal go to further lines
    /// of their row.
    pub(crate) fn table(&mut self, rows: &[(Style, Vec<String>)]) {
        let columns = rows.iter().map(|(_, row)| row.len()).max().unwrap_or(0);
        let shown: Vec<Vec<String>> =
            rows.iter().map(|(_, row)| row.iter().map(|cell| shown(cell)).collect()).collect();
        let width = |column: usize| {
            let cells = shown.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let lines = self.lines_of(&widths);
        for (index, ((style, _), row)) in rows.iter().zip(&shown).enumerate() {
            for (start, end) in &lines {
                let indent = if *start == 0 { INDENT } else { FOLDED_INDENT };
                let mut line = format!("{:indent$}", "");
                for (column, cell) in row.iter().enumerate().take(*end).skip(*start) {
                    let style = match (index, column) {
                        (0, _) => Style::Faint,
                        (_, 1) => *style,
                        _ => Style::Plain,
                    };
                    // A cell alone on its line folds between words.
                    let parts = match end - start {
                        1 => self.folded(cell, indent),
                        _ => vec![cell.clone()],
                    };
                    let parts: Vec<String> = parts.iter().map(|p| self.paint(style, p)).collect();
                    let last = column + 1 == row.len().min(*end);
                    let pad = if last { 0 } else { widths[column] + 2 - cell.chars().count() };
                    let _ = write!(line, "{}{:pad$}", parts.join(&format!("\n{:indent$}", "")), "");
                }
                self.text.push_str(line.trim_end());
                self.text.push('\n');
            }
        }
    }

    /// Distributes columns of these widths over lines: start and end of each.
    fn lines_of(&self, widths: &[usize]) -> Vec<(usize, usize)> {
        let room = self.options.columns.unwrap_or(usize::MAX);
        let (mut lines, mut start, mut used) = (Vec::new(), 0, INDENT);
        for (column, width) in widths.iter().enumerate() {
            if column > start && used.saturating_add(*width) > room {
                lines.push((start, column));
                (start, used) = (column, FOLDED_INDENT);
            }
            used += width + 2;
        }
        lines.push((start, widths.len()));
        lines
    }

    fn paint(&self, style: Style, text: &str) -> String {
        let text = shown(text);
        if !self.colour || style == Style::Plain || text.is_empty() {
            return text;
        }
        format!("\x1b[{}m{text}\x1b[0m", style.code())
    }
}

/// Escapes the control characters of the text.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(colour: bool) -> String {
        let mut page = Page::new(colour, OutputOptions::default());
        let row = |cells: [&str; 3]| cells.map(String::from).to_vec();
        page.table(&[
            (Style::Plain, row(["SLOT", "STATE", "MEMBER"])),
            (Style::Good, row(["0", "in sync", "a"])),
            (Style::Bad, row(["10", "missing", "e\x1b[2Jvil"])),
        ]);
        page.into_text()
    }

    #[test]
    fn columns_are_aligned_and_control_characters_are_shown() {
        let expected =
            "  SLOT  STATE    MEMBER\n  0     in sync  a\n  10    missing  e\\u{1b}[2Jvil\n";
        assert_eq!(sample(false), expected);
    }

    #[test]
    fn colour_does_not_move_columns() {
        let plain: String = sample(true)
            .split('\x1b')
            .enumerate()
            .map(
                |(index, part)| {
                    if index == 0 { part } else { &part[part.find('m').unwrap() + 1..] }
                },
            )
            .collect();
        assert_eq!(plain, sample(false));
    }

    #[test]
    fn tables_and_fields_fold_to_the_terminal_and_commands_do_not() {
        let options = OutputOptions { columns: Some(30), ..OutputOptions::default() };
        let mut page = Page::new(false, options);
        let row = |cells: [&str; 4]| cells.map(String::from).to_vec();
        page.table(&[
            (Style::Plain, row(["SLOT", "STATE", "MEMBER", "DISKS"])),
            (Style::Good, row(["0", "in sync", "/dev/sda", "a"])),
            (Style::Good, row(["1", "missing", "-", "/dev/disk/1 /dev/disk/2 /dev/disk/3"])),
        ]);
        page.field("problem", "2 members are missing");
        page.command("action", "parapet add tank DISK");
        let expected = [
            "  SLOT  STATE    MEMBER\n      DISKS\n  0     in sync  /dev/sda\n      a\n",
            "  1     missing  -\n      /dev/disk/1 /dev/disk/2\n      /dev/disk/3\n",
            "     problem  2 members are\n              missing\n",
            "      action  parapet add tank DISK\n",
        ]
        .concat();
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn sizes_are_shown_as_asked_for() {
        let page =
            |exact, si| Page::new(false, OutputOptions { exact, si, ..OutputOptions::default() });
        assert_eq!(page(true, false).size(65536), "65536");
        assert_eq!(page(false, false).size(65536), "64 KiB");
        assert_eq!(page(false, true).size(65536), "65.5 kB");
        assert_eq!(page(false, false).in_both_units(6 << 40), "6 TiB (6.60 TB)");
    }
}
