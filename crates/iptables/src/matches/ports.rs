//! Port options of TCP, UDP and SCTP.

use std::fmt;

use crate::extensions::structure::{Reader, Writer};
use crate::options::negatable::Negatable;
use crate::options::number::Ports;
use crate::options::{Parsed, Values, set_once};

/// An optional port condition.
pub(super) type Place = Option<Negatable<Ports>>;

/// Parses a port option.
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
        values.negatable(|text| Ports::parse_services(text, ':'))?,
    )
}

/// Removes conditions that match every port: TCP and UDP cannot store them.
pub(super) fn forget_all(sport: &mut Place, dport: &mut Place) {
    for place in [sport, dport] {
        if *place == Some(Negatable::Is(Ports::ALL)) {
            *place = None;
        }
    }
}

/// Writes the port options.
pub(super) fn write(sport: &Place, dport: &Place, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(ports) = sport {
        ports.write(f, "--sport")?;
    }
    if let Some(ports) = dport {
        ports.write(f, "--dport")?;
    }
    Ok(())
}

/// The ports of a structure without a condition, which has a flag.
pub(super) const NONE: Ports = Ports { first: 0, last: 0 };

/// Appends the first and last port, or a default.
pub(super) fn write_or(out: &mut Writer<'_>, place: &Place, default: Ports) {
    let Ports { first, last } = place.as_ref().map_or(&default, Negatable::value);
    out.u16(*first).u16(*last);
}

/// Reads the first and last port.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Ports> {
    let (first, last) = (reader.u16()?, reader.u16()?);
    Some(Ports { first, last })
}

/// Returns the condition on ports, unless it matches all.
pub(super) fn condition(ports: Ports, is_negated: bool) -> Place {
    (ports != Ports::ALL).then(|| Negatable::new(is_negated, ports))
}

/// Methods that set port conditions.
macro_rules! setters {
    () => {
        /// Matches every port.
        pub fn new() -> Self {
            Self::default()
        }

        /// Matches these destination ports.
        #[must_use]
        pub fn with_dport(mut self, ports: impl Into<Ports>) -> Self {
            self.dport = Some(Negatable::Is(ports.into()));
            self
        }

        /// Matches all other destination ports.
        #[must_use]
        pub fn with_not_dport(mut self, ports: impl Into<Ports>) -> Self {
            self.dport = Some(Negatable::Not(ports.into()));
            self
        }

        /// Matches these source ports.
        #[must_use]
        pub fn with_sport(mut self, ports: impl Into<Ports>) -> Self {
            self.sport = Some(Negatable::Is(ports.into()));
            self
        }

        /// Matches all other source ports.
        #[must_use]
        pub fn with_not_sport(mut self, ports: impl Into<Ports>) -> Self {
            self.sport = Some(Negatable::Not(ports.into()));
            self
        }
    };
}

pub(super) use setters;
