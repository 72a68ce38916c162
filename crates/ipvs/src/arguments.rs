//! Options of a command line, as `ipvsadm` reads them.

/// Result with a description of the problem.
pub(crate) type Result<T> = std::result::Result<T, &'static str>;

/// An option.
#[derive(Debug)]
pub(crate) struct Known {
    /// Short name; `\0` for none.
    short: char,
    /// Long name without dashes.
    pub(crate) long: &'static str,
    value: Value,
}

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Value {
    None,
    Optional,
    Required,
}

const fn switch(short: char, long: &'static str) -> Known {
    let value = Value::None;
    Known { short, long, value }
}

const fn value(short: char, long: &'static str) -> Known {
    let value = Value::Required;
    Known { short, long, value }
}

/// All options.
const OPTIONS: &[Known] = &[
    switch('A', "add-service"),
    switch('C', "clear"),
    switch('D', "delete-service"),
    switch('E', "edit-service"),
    switch('L', "list"),
    switch('l', "list"),
    switch('R', "restore"),
    switch('S', "save"),
    switch('Z', "zero"),
    switch('a', "add-server"),
    switch('d', "delete-server"),
    switch('e', "edit-server"),
    switch('\0', "set"),
    value('\0', "start-daemon"),
    value('\0', "stop-daemon"),
    value('t', "tcp-service"),
    value('u', "udp-service"),
    value('\0', "sctp-service"),
    value('f', "fwmark-service"),
    switch('6', "ipv6"),
    value('s', "scheduler"),
    Known {
        short: 'p',
        long: "persistent",
        value: Value::Optional,
    },
    value('M', "netmask"),
    value('\0', "pe"),
    switch('o', "ops"),
    value('b', "sched-flags"),
    value('r', "real-server"),
    switch('m', "masquerading"),
    switch('i', "ipip"),
    switch('g', "gatewaying"),
    value('w', "weight"),
    value('x', "u-threshold"),
    value('y', "l-threshold"),
    value('\0', "tun-type"),
    value('\0', "tun-port"),
    switch('\0', "tun-nocsum"),
    switch('\0', "tun-csum"),
    switch('\0', "tun-remcsum"),
    value('\0', "mcast-interface"),
    value('\0', "mcast-group"),
    value('\0', "mcast-port"),
    value('\0', "mcast-ttl"),
    value('\0', "syncid"),
    value('\0', "sync-maxlen"),
    switch('n', "numeric"),
    switch('c', "connection"),
    switch('\0', "timeout"),
    switch('\0', "daemon"),
    switch('\0', "stats"),
    switch('\0', "rate"),
    switch('\0', "thresholds"),
    switch('\0', "persistent-conn"),
    switch('\0', "tun-info"),
    switch('\0', "nosort"),
    switch('\0', "sort"),
    switch('X', "exact"),
];

/// The options of a line with their values, and the other words.
#[derive(Debug, Default)]
pub(crate) struct Arguments<'a> {
    pub(crate) options: Vec<(&'static str, Option<&'a str>)>,
    pub(crate) rest: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Reads a line. The word `ipvsadm` is skipped.
    pub(crate) fn read(line: &'a str) -> Result<Self> {
        let mut arguments = Self::default();
        let words = line.split_ascii_whitespace();
        let mut words = words.filter(|word| *word != "ipvsadm").peekable();
        while let Some(word) = words.next() {
            let mut next = |value| match value {
                Value::Required => words.next(),
                _ => words.next_if(|next| !next.starts_with('-')),
            };
            if let Some(long) = word.strip_prefix("--") {
                arguments.long(long, &mut next)?;
            } else if let Some(shorts) = word.strip_prefix('-').filter(|it| !it.is_empty()) {
                arguments.shorts(shorts, &mut next)?;
            } else {
                arguments.rest.push(word);
            }
        }
        Ok(arguments)
    }

    /// Reads `--name`, `--name value` or `--name=value`.
    fn long(
        &mut self,
        word: &'a str,
        next: &mut impl FnMut(Value) -> Option<&'a str>,
    ) -> Result<()> {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let known = OPTIONS.iter().find(|known| known.long == name);
        let known = known.ok_or("unknown option")?;
        match (known.value, inline) {
            (Value::None, Some(_)) => Err("the option has no value"),
            (Value::None, None) => self.push(known, None),
            (_, Some(value)) => self.push(known, Some(value)),
            (value, None) => self.push(known, next(value)),
        }
    }

    /// Reads short options in one word: `-n`, `-Ln`, `-w5`, `-w=5`, `-mw 5`.
    fn shorts(
        &mut self,
        word: &'a str,
        next: &mut impl FnMut(Value) -> Option<&'a str>,
    ) -> Result<()> {
        let mut letters = word.chars();
        while let Some(letter) = letters.next() {
            let known = OPTIONS
                .iter()
                .find(|known| known.short == letter && letter != '\0');
            let known = known.ok_or("unknown option")?;
            if known.value == Value::None {
                self.push(known, None)?;
                continue;
            }
            let rest = letters.as_str();
            let inline = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest));
            return self.push(known, inline.or_else(|| next(known.value)));
        }
        Ok(())
    }

    fn push(&mut self, known: &'static Known, value: Option<&'a str>) -> Result<()> {
        if known.value == Value::Required && value.is_none() {
            return Err("missing value of an option");
        }
        self.options.push((known.long, value));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_all_spellings() {
        let line = "ipvsadm -Lnt=1 --weight 5 --rate -p -x7 --persistent=3 -mw -1 rest -p 9";
        let arguments = Arguments::read(line).unwrap();
        assert_eq!(
            arguments.options,
            [
                ("list", None),
                ("numeric", None),
                ("tcp-service", Some("1")),
                ("weight", Some("5")),
                ("rate", None),
                ("persistent", None),
                ("u-threshold", Some("7")),
                ("persistent", Some("3")),
                ("masquerading", None),
                ("weight", Some("-1")),
                ("persistent", Some("9")),
            ]
        );
        assert_eq!(arguments.rest, ["rest"]);
        for (line, error) in [
            ("-q", "unknown option"),
            ("--we 5", "unknown option"),
            ("-w", "missing value of an option"),
            ("--list=1", "the option has no value"),
        ] {
            assert_eq!(Arguments::read(line).unwrap_err(), error);
        }
    }
}
