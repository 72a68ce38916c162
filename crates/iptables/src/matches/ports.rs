//! Ports, as TCP, UDP and SCTP have them.

use std::fmt;

use crate::negatable::Negatable;
use crate::number::Ports;
use crate::options::{Parsed, Values, set_once};

/// Source and destination ports that are wanted.
pub(super) type Place = Option<Negatable<Ports>>;

/// Takes an option about ports.
pub(super) fn take(
    sport: &mut Place,
    dport: &mut Place,
    option: &str,
    values: &mut Values<'_, '_>,
) -> Parsed {
    let place = match option {
        "--dport" | "--destination-port" => dport,
        "--sport" | "--source-port" => sport,
        _ => return Ok(false),
    };
    set_once(
        place,
        values.negatable(|text| Ports::parse(text, ':', Ports::ALL))?,
    )
}

/// Drops conditions that every port meets, which TCP and UDP have no way to keep.
pub(super) fn forget_all(sport: &mut Place, dport: &mut Place) {
    for place in [sport, dport] {
        if *place == Some(Negatable::Is(Ports::ALL)) {
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
            self.dport = Some(Negatable::Is(ports.into()));
            self
        }

        /// Wants any other destination port.
        #[must_use]
        pub fn not_dport(mut self, ports: impl Into<Ports>) -> Self {
            self.dport = Some(Negatable::Not(ports.into()));
            self
        }

        /// Wants this source port, or one of these.
        #[must_use]
        pub fn sport(mut self, ports: impl Into<Ports>) -> Self {
            self.sport = Some(Negatable::Is(ports.into()));
            self
        }

        /// Wants any other source port.
        #[must_use]
        pub fn not_sport(mut self, ports: impl Into<Ports>) -> Self {
            self.sport = Some(Negatable::Not(ports.into()));
            self
        }
    };
}

pub(super) use setters;
