//! Options that are joined with their value.

use std::borrow::Cow;

use crate::options::lexer::Word;

/// Splits a general option and its joined value: `-ptcp` or `--protocol=tcp`.
pub(super) fn split_general(text: &str) -> Option<(&str, &str)> {
    const LONG: [&str; 11] = [
        "--source",
        "--src",
        "--destination",
        "--dst",
        "--in-interface",
        "--out-interface",
        "--protocol",
        "--match",
        "--jump",
        "--goto",
        "--set-counters",
    ];
    match text.as_bytes() {
        [b'-', b'-', ..] => text
            .split_once('=')
            .filter(|(option, _)| LONG.contains(option)),
        [
            b'-',
            b's' | b'd' | b'i' | b'o' | b'p' | b'm' | b'j' | b'g' | b'c',
            _,
            ..,
        ] => text.split_at_checked(2),
        _ => None,
    }
}

/// Splits `--option=value`. Quotes can be anywhere: `--log-prefix="a b"`.
pub(super) fn split<'a>(word: &Word<'a>) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
    if !word.text.starts_with("--") {
        return (word.text.clone(), None);
    }
    match &word.text {
        Cow::Borrowed(text) => match text.split_once('=') {
            Some((option, value)) => (option.into(), Some(value.into())),
            None => (word.text.clone(), None),
        },
        Cow::Owned(text) => match text.split_once('=') {
            Some((option, value)) => (option.to_owned().into(), Some(value.to_owned().into())),
            None => (word.text.clone(), None),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::Rule;
    use crate::targets::Target;

    #[test]
    fn a_joined_value_may_be_quoted() {
        let expected = r#"-j LOG --log-prefix "a b""#;
        for text in [
            r#"-j LOG --log-prefix="a b""#,
            r#"-j LOG --log-prefix=a" b""#,
            r#"-j LOG "--log-prefix=a b""#,
        ] {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(rule.to_string(), expected);
            assert!(matches!(rule.target, Some(Target::Log(_))), "{text}");
        }
    }
}
