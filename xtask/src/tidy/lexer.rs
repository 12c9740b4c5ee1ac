//! Rust source → tokens, as far as house rules need it.
//!
//! Knows strings, raw strings, characters, lifetimes and nested comments, so that no rule is fooled
//! by a brace in a string or a banned word in a comment. Never fails: on source that does not
//! compile it returns some tokens, and the compiler says the rest.
//!
//! Invariant: tokens come in order of the text, and none is empty.

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Identifier or keyword, without `r#`.
    Word,
    /// String, character or number, as written.
    Literal,
    /// `'a`.
    Lifetime,
    /// One character of punctuation.
    Mark,
    /// Line or block comment, doc comments too, as written.
    Comment,
}

/// A piece of source and the line, from 1, on which it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// All tokens of `source`, comments among them.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            line += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (kind, length) = next(rest);
        let (text, after) = rest.split_at(length);
        let shown = text.strip_prefix("r#").filter(|_| kind == Kind::Word).unwrap_or(text);
        found.push(Token { kind, text: shown, line });
        line += text.matches('\n').count();
        rest = after;
    }
    found
}

/// Kind and length in bytes of the token that `rest` (not empty, no leading space) starts with.
fn next(rest: &str) -> (Kind, usize) {
    let first = rest.chars().next().expect("the caller saw a character");
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if let Some(length) = string(rest) {
        return (Kind::Literal, length);
    }
    if first == '\'' {
        return quote(rest);
    }
    if rest.strip_prefix("r#").is_some_and(|name| word(name) > 0) {
        return (Kind::Word, 2 + word(&rest[2..]));
    }
    if is_word(first) {
        let kind = if first.is_ascii_digit() { Kind::Literal } else { Kind::Word };
        return (kind, word(rest));
    }
    (Kind::Mark, first.len_utf8())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word(rest: &str) -> usize {
    rest.find(|character| !is_word(character)).unwrap_or(rest.len())
}

fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// The length of the string literal at the start of `rest`, with its prefix, if there is one.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix).unwrap_or("");
        let hashes = if prefix.ends_with('r') { after.trim_start_matches('#') } else { after };
        hashes.starts_with('"')
    })?;
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let open = prefix.len() + hashes + 1;
        return Some(rest[open..].find(&close).map_or(rest.len(), |at| open + at + close.len()));
    }
    Some(prefix.len() + quoted(body, '"'))
}

/// The length of `body` from its opening quote to its closing one; a backslash hides a character.
fn quoted(body: &str, close: char) -> usize {
    let mut characters = body.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == close {
            return at + close.len_utf8();
        }
    }
    body.len()
}

/// `'x'` and `'\n'` are characters, `'a` is a lifetime.
fn quote(rest: &str) -> (Kind, usize) {
    let mut after = rest.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => (Kind::Literal, quoted(rest, '\'')),
        (Some(first), _) if is_word(first) => (Kind::Lifetime, 1 + word(&rest[1..])),
        _ => (Kind::Mark, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str, kind: Kind) -> Vec<&str> {
        tokens(source).into_iter().filter(|token| token.kind == kind).map(|t| t.text).collect()
    }

    #[test]
    fn braces_in_strings_characters_and_comments_are_not_code() {
        let source = r##"fn a() { "}\"{"; r#"}"{"#; '{'; '\''; b'}'; br"{"; /* { /* } */ { */ }"##;
        assert_eq!(texts(source, Kind::Mark).iter().filter(|text| **text == "{").count(), 1);
        assert_eq!(texts(source, Kind::Mark).iter().filter(|text| **text == "}").count(), 1);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let source = "fn f<'a>(x: &'a str) -> &'static str { match c { '\"' => 'b, _ => \"x\" } }";
        assert_eq!(texts(source, Kind::Lifetime), ["'a", "'a", "'static", "'b"]);
        assert_eq!(texts(source, Kind::Literal), ["'\"'", "\"x\""]);
    }

    #[test]
    fn raw_identifiers_lose_their_prefix_and_strings_starting_with_r_stay_strings() {
        assert_eq!(texts("r#type r\"x\" rest", Kind::Word), ["type", "rest"]);
        assert_eq!(texts("r#type r\"x\" rest", Kind::Literal), ["r\"x\""]);
    }

    #[test]
    fn lines_are_counted_through_tokens_of_several_lines() {
        let lines: Vec<_> = tokens("a /*\n*/ \"\n\\\n\" b\n// c").iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 1, 2, 4, 5]);
    }

    #[test]
    fn unfinished_source_ends_the_scan_instead_of_failing() {
        for source in ["\"open", "r##\"open\"#", "/* open", "'", "'\\", "é'", "b", "r#"] {
            let together: usize = tokens(source).iter().map(|token| token.text.len()).sum();
            assert!(together <= source.len(), "{source}");
        }
    }
}
