//! Hashes of connections (`symhash`).
//!
//! The kernel derives all results for one connection from one hash with a random key. So
//! the results of different moduli depend on each other. The hash is a point of the
//! interval from 0 to 1, and each result restricts the interval further.

use std::net::IpAddr;

use super::cause::Cause;
use super::choices::Choices;
use super::packet::Packet;

/// Ends of a connection, in order, and its protocol.
type Ends = ([(IpAddr, Option<u16>); 2], u8);

/// An interval of hashes: from `low / parts` to `high / parts`.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: u128,
    high: u128,
    parts: u128,
}

/// The intervals of the hashes of the connections that were hashed so far.
#[derive(Debug, Default)]
pub(super) struct Symmetric(Vec<(Ends, Interval)>);

impl Symmetric {
    /// Chooses the result for a packet: a number below `modulus`.
    pub(super) fn choose(
        &mut self,
        packet: &Packet,
        modulus: u32,
        choices: &mut Choices,
    ) -> Result<u32, Cause> {
        let mut ends = [
            (packet.source(), packet.source_port()),
            (packet.destination(), packet.destination_port()),
        ];
        if packet.has_ports() && ends.iter().any(|(_, port)| port.is_none()) {
            return Err(Cause::unknown("port of the packet"));
        }
        ends.sort();
        let ends = (ends, packet.protocol());
        let known = self.0.iter().position(|(known, _)| *known == ends);
        let whole = Interval {
            low: 0,
            high: 1,
            parts: 1,
        };
        let before = known.and_then(|at| self.0.get(at));
        let before = before.map_or(whole, |(_, interval)| *interval);
        let (result, after) = before.divide(modulus.into(), choices)?;
        match known.and_then(|at| self.0.get_mut(at)) {
            Some((_, interval)) => *interval = after,
            None => self.0.push((ends, after)),
        }
        u32::try_from(result).map_err(|_| Cause::Operand)
    }
}

impl Interval {
    /// Chooses one of `modulus` equal parts of all hashes that intersects the interval.
    fn divide(self, modulus: u128, choices: &mut Choices) -> Result<(u128, Self), Cause> {
        if modulus == 0 {
            return Err(Cause::Operand);
        }
        let divisor = common_divisor(self.parts, modulus);
        let scale = modulus / divisor;
        let parts = self.parts.checked_mul(scale).ok_or(Cause::Probability)?;
        let (low, high) = (self.low * scale, self.high * scale);
        let width = parts / modulus;
        let first = low / width;
        let last = (high - 1) / width;
        if last - first >= super::cause::MAX_OUTCOMES as u128 {
            return Err(Cause::Outcomes);
        }
        let part = |number: u128| Self {
            low: low.max(number * width),
            high: high.min((number + 1) * width),
            parts,
        };
        let weights = (first..=last).map(|it| part(it).high - part(it).low);
        let result = first + choices.choose(weights.collect()) as u128;
        Ok((result, part(result)))
    }
}

/// Returns the greatest common divisor of two numbers other than zero.
fn common_divisor(mut one: u128, mut other: u128) -> u128 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_different_moduli_depend_on_each_other() {
        let end = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        let packet = Packet::udp(end(1), end(2));
        let reply = Packet::udp(end(2), end(1));
        let mut choices = Choices::default();
        let mut seen = Vec::new();
        loop {
            let mut hashes = Symmetric::default();
            let mut choose = |packet, modulus| hashes.choose(packet, modulus, &mut choices);
            let two = choose(&packet, 2).unwrap();
            let three = choose(&reply, 3).unwrap();
            assert_eq!(choose(&packet, 2), Ok(two), "the hash does not change");
            let probability = choices.probability().unwrap().to_string();
            seen.push((two, three, probability));
            if !choices.advance() {
                break;
            }
        }
        let expected = [(0, 0, "1/3"), (0, 1, "1/6"), (1, 1, "1/6"), (1, 2, "1/3")];
        let expected = expected.map(|(two, three, p)| (two, three, p.to_owned()));
        assert_eq!(seen, expected);
    }
}
