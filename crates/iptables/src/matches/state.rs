//! `-m state`: connection state, deprecated form.

use std::fmt;

use crate::extensions::structure::{Reader, Structure, Writer};
use crate::matches::{Conntrack, CtState, conntrack};
use crate::options::list;
use crate::options::negatable::Negatable;
use crate::options::{Extension, Parsed, Values};

/// Matches the connection state, deprecated form: `-m state --state NEW`.
///
/// [`Conntrack`](super::Conntrack) replaces this match, which does not support
/// `SNAT` and `DNAT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct State(pub Negatable<CtState>);

impl<'a> Extension<'a> for State {
    fn open() -> Self {
        Self(Negatable::Is(CtState::empty()))
    }

    fn options() -> &'static [&'static str] {
        &["--state"]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        if option != "--state" {
            return Ok(false);
        }
        values.expect_index(0)?;
        self.0 = values.negatable(|text| {
            list::parse_abbreviated(text)
                .filter(|state: &CtState| !state.intersects(CtState::SNAT | CtState::DNAT))
        })?;
        Ok(true)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m state")?;
        self.0.write(f, "--state")
    }
}

/// `struct xt_conntrack_mtinfo3` with the flag `XT_CONNTRACK_STATE_ALIAS`.
impl Structure for State {
    const NAME: &'static str = Conntrack::NAME;
    const REVISION: u32 = Conntrack::REVISION;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let state = Some(self.0);
        let all = Conntrack {
            state,
            ..Conntrack::default()
        };
        conntrack::write(&all, true, out)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (conntrack, is_alias) = conntrack::read(reader)?;
        conntrack.state.filter(|_| is_alias).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn state_is_parsed_and_printed() {
        let table = [
            ("-m state --state NEW", State(Negatable::Is(CtState::NEW))),
            (
                "-m state ! --state RELATED,ESTABLISHED",
                State(Negatable::Not(CtState::RELATED | CtState::ESTABLISHED)),
            ),
        ];
        for (text, state) in table {
            let rule = Rule::new().with_match(state);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        let loose = Rule::parse("-m state --state established,new").unwrap();
        assert_eq!(loose.to_string(), "-m state --state NEW,ESTABLISHED");
        let odd = Rule::parse("-m state --state DNAT").unwrap();
        assert_eq!(
            odd,
            Rule::new().with_match(crate::matches::Match::Other("-m state --state DNAT".into()))
        );
    }
}
