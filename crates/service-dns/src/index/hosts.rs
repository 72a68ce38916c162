//! Published endpoints of a Service, from any position on.

use super::ports::Port;
use super::{Endpoint, Found, Slice};

/// Published endpoints of a Service, each once for every port.
///
/// A position costs a step for each slice. The endpoints in front of it cost nothing.
pub(crate) struct Hosts<'a> {
    found: Found<'a>,
    /// Slices with published endpoints, with their ports. `None` counts each endpoint once.
    groups: Vec<(&'a Slice, Option<&'a [Port]>)>,
}

impl<'a> Hosts<'a> {
    /// Returns the endpoints of the slices for which `ports` returns some.
    pub(super) fn new(
        found: Found<'a>,
        ports: impl Fn(&'a Slice) -> Option<Option<&'a [Port]>>,
    ) -> Self {
        let groups = found.slices().filter_map(|slice| {
            let ports = ports(slice)?;
            (found.published(slice) > 0 && times(ports) > 0).then_some((slice, ports))
        });
        Self {
            found,
            groups: groups.collect(),
        }
    }

    /// Returns whether there are no endpoints.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number of endpoints, each as often as it has ports.
    pub(crate) fn count(&self) -> usize {
        let groups = self.groups.iter();
        groups.map(|&group| self.size(group)).sum()
    }

    /// Returns all endpoints from a position on, with their port numbers. The endpoints in
    /// front of the position are last. The number is 0 for endpoints without ports.
    pub(crate) fn starting_at(
        &self,
        position: usize,
    ) -> impl Iterator<Item = (&'a Slice, &'a Endpoint, u16)> {
        let (mut first, mut skipped) = (0, position % self.count().max(1));
        for &group in &self.groups {
            let size = self.size(group);
            if skipped < size {
                break;
            }
            skipped -= size;
            first += 1;
        }
        let (before, after) = self.groups.split_at(first.min(self.groups.len()));
        let last = after
            .first()
            .map(|&group| self.members(group).take(skipped));
        let members = after.iter().chain(before);
        let members = members.flat_map(|&group| self.members(group));
        members.skip(skipped).chain(last.into_iter().flatten())
    }

    fn size(&self, (slice, ports): (&'a Slice, Option<&'a [Port]>)) -> usize {
        self.found.published(slice) * times(ports)
    }

    fn members(
        &self,
        (slice, ports): (&'a Slice, Option<&'a [Port]>),
    ) -> impl Iterator<Item = (&'a Slice, &'a Endpoint, u16)> + use<'a> {
        let number = move |at| {
            ports
                .and_then(|ports| ports.get(at))
                .map_or(0, Port::number)
        };
        let endpoints = self.found.endpoints_of(slice);
        endpoints.flat_map(move |endpoint| {
            (0..times(ports)).map(move |at| (slice, endpoint, number(at)))
        })
    }
}

/// Returns how often each endpoint counts.
fn times(ports: Option<&[Port]>) -> usize {
    ports.map_or(1, <[Port]>::len)
}
