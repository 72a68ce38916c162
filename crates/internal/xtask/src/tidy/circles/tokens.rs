//! Splits Rust source text into tokens.
//!
//! Comments, literals and lifetimes have no tokens. Code that only tests compile is removed.

/// A name, `::`, or one character of punctuation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    /// Line, from 1.
    pub(super) line: usize,
    /// Text.
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Returns whether the token is a name, a keyword or a number.
    pub(super) fn is_name(&self) -> bool {
        self.text.starts_with(is_part)
    }
}

/// Returns the tokens of a file without those of `#[cfg(test)]` items.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    without_tests(&all(text))
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn all(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (length, is_token) = match literal(rest) {
            Some(length) => (length, false),
            None if first.is_whitespace() => (first.len_utf8(), false),
            None if is_part(first) => (name(rest), true),
            None if rest.starts_with("::") => (2, true),
            None => (first.len_utf8(), true),
        };
        let (text, after) = rest.split_at(length);
        if is_token {
            tokens.push(Token { line, text });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Returns the length of the name that a text starts with.
fn name(text: &str) -> usize {
    text.find(|character| !is_part(character))
        .unwrap_or(text.len())
}

/// Returns the length of the comment, string, character or lifetime that a text starts with.
fn literal(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |end| end + 2));
    }
    if let Some(rest) = text.strip_prefix('\'') {
        return Some(1 + quoted_character(rest));
    }
    let prefix = ["br", "cr", "b", "c", "r", ""]
        .iter()
        .find(|prefix| {
            text.strip_prefix(**prefix)
                .is_some_and(|rest| rest.starts_with(['"', '#']))
        })?
        .len();
    let (is_raw, rest) = (text[..prefix].ends_with('r'), &text[prefix..]);
    let hashes = rest.find(|character| character != '#').unwrap_or(0);
    let body = rest[hashes..].strip_prefix('"')?;
    let length = if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        body.find(&end).map_or(body.len(), |at| at + end.len())
    } else if hashes == 0 {
        1 + unescaped(body, '"')
    } else {
        return None;
    };
    Some(prefix + hashes + 1 + length)
}

/// Returns the length of a character literal or lifetime after its first quote.
fn quoted_character(rest: &str) -> usize {
    let mut characters = rest.chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => 1 + unescaped(rest, '\''),
        (Some(one), Some('\'')) => one.len_utf8() + 1,
        _ => name(rest),
    }
}

/// Returns the position of the first quote without a backslash, or the length of the text.
fn unescaped(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        if character == quote && !is_escaped {
            return at;
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    text.len().saturating_sub(1)
}

fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if is_test_attribute(&tokens[at..]) {
            at += item(&tokens[at..]);
        } else {
            kept.push(*token);
            at += 1;
        }
    }
    kept
}

fn is_test_attribute(tokens: &[Token<'_>]) -> bool {
    [
        &["#", "[", "cfg", "(", "test", ")", "]"][..],
        &["#", "[", "cfg", "(", "all", "(", "test", ","],
        &["#", "[", "test", "]"],
    ]
    .iter()
    .any(|start| {
        tokens.len() >= start.len() && start.iter().zip(tokens).all(|(text, it)| *text == it.text)
    })
}

/// Returns the number of tokens of the item that a list starts with, with its attributes.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while tokens.get(at).is_some_and(|token| token.text == "#") {
        at += 1 + group(&tokens[at + 1..]);
    }
    let is_use = tokens[at..].iter().take(5).any(|token| token.text == "use");
    while let Some(token) = tokens.get(at) {
        match token.text {
            ";" => return at + 1,
            "{" if !is_use => return at + group(&tokens[at..]),
            "(" | "[" | "{" => at += group(&tokens[at..]),
            // The end of the scope: a field or an arm without a comma.
            ")" | "]" | "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// Returns the number of tokens up to the bracket that closes the first one.
fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_literals_and_lifetimes_have_no_tokens() {
        let text = r####"a::b /* crate::c */ // crate::d
            "crate::\"e" r#"crate::"f"# b"g" 'h' '\'' '\u{1}' &'static i r"\" 0x1f"####;
        assert_eq!(texts(text), ["a", "::", "b", "&", "i", "0x1f"]);
    }

    #[test]
    fn code_of_tests_is_removed() {
        let text = "use a::b;\n#[cfg(test)]\n#[allow(x)]\npub(crate) use c::{d, e};\n\
            #[cfg(test)]\nmod f;\n#[cfg(test)]\nmod g {\n fn h() { i(); }\n}\n\
            #[cfg(test)]\nfn j<K, L>(m: N) -> O { p() }\n#[cfg(any(test, q))]\nmod r;\n";
        let kept = "use a :: b ; # [ cfg ( any ( test , q ) ) ] mod r ;";
        assert_eq!(texts(text), kept.split(' ').collect::<Vec<_>>());
        assert_eq!(tokens(text).last().map(|token| token.line), Some(14));
    }
}
