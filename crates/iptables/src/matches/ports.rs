//! Ports, as TCP, UDP and SCTP have them.

use std::fmt;

use crate::maybe::Maybe;
use crate::number::Ports;
use crate::options::{Taken, Values, once};

/// Source and destination ports that are wanted.
pub(super) type Place = Option<Maybe<Ports>>;

/// Takes an option about ports.
pub(super) fn take(
    sport: &mut Place,
    dport: &mut Place,
    option: &str,
    values: &mut Values<'_, '_>,
) -> Taken {
    let place = match option {
        "--dport" | "--destination-port" => dport,
        "--sport" | "--source-port" => sport,
        _ => return Ok(false),
    };
    once(
        place,
        values.maybe(|text| Ports::parse(text, ':', Ports::ALL))?,
    )
}

/// Drops conditions that every port meets, which TCP and UDP have no way to keep.
pub(super) fn forget_all(sport: &mut Place, dport: &mut Place) {
    for place in [sport, dport] {
        if *place == Some(Maybe::Is(Ports::ALL)) {
            *place = None;
        }
    }
}

/// Writes the options.
pub(super) fn write(sport: &Place, dport: &Place, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(ports) = sport {
        ports.write(f, "--sport")?;
    }
    if let Some(ports) = dport {
        ports.write(f, "--dport")?;
    }
    Ok(())
}

/// Methods that set the ports.
macro_rules! setters {
    () => {
        /// Makes one for every port.
        pub fn new() -> Self {
            Self::default()
        }

        /// Wants this destination port, or one of these.
        #[must_use]
        pub fn dport(mut self, ports: impl Into<Ports>) -> Self {
            self.dport = Some(Maybe::Is(ports.into()));
            self
        }

        /// Wants any other destination port.
        #[must_use]
        pub fn not_dport(mut self, ports: impl Into<Ports>) -> Self {
            self.dport = Some(Maybe::Not(ports.into()));
            self
        }

        /// Wants this source port, or one of these.
        #[must_use]
        pub fn sport(mut self, ports: impl Into<Ports>) -> Self {
            self.sport = Some(Maybe::Is(ports.into()));
            self
        }

        /// Wants any other source port.
        #[must_use]
        pub fn not_sport(mut self, ports: impl Into<Ports>) -> Self {
            self.sport = Some(Maybe::Not(ports.into()));
            self
        }
    };
}

pub(super) use setters;
