//! A parsed EndpointSlice.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use vipline_service_model::{
    Family, Field, Kind, ObjectName, Problem, SpecialAddress, Warning, Warnings, api, parse_address,
};

use super::label::is_label;
use super::{EntryId, Ports};

/// A parsed slice.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Entry of the Service.
    pub(super) owner: EntryId,
    /// Ports of each endpoint.
    pub(crate) ports: Ports,
    /// Invariant: sorted by address.
    pub(super) endpoints: Box<[Endpoint]>,
    /// Number of ready endpoints.
    pub(super) ready: usize,
    /// Invariant: sorted by name.
    named: Box<[Named]>,
}

/// An address of an endpoint.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Endpoint {
    /// Address.
    pub(crate) addr: IpAddr,
    /// Whether the endpoint is ready.
    pub(crate) is_ready: bool,
    /// Position within `named`, plus 1.
    named: Option<NonZeroU32>,
}

/// Host name of an endpoint.
#[derive(Debug)]
struct Named {
    hostname: Arc<str>,
    /// Position of the endpoint.
    endpoint: u32,
}

impl Slice {
    /// Returns the endpoints with an address.
    pub(crate) fn at(&self, addr: IpAddr) -> &[Endpoint] {
        let start = self.endpoints.partition_point(|it| it.addr < addr);
        let rest = self.endpoints.get(start..).unwrap_or_default();
        let length = rest.partition_point(|it| it.addr == addr);
        rest.get(..length).unwrap_or_default()
    }

    /// Returns the host name of an endpoint of the slice. `None` if the object has none.
    pub(crate) fn hostname(&self, endpoint: &Endpoint) -> Option<&Arc<str>> {
        let position = endpoint.named?.get() as usize - 1;
        self.named.get(position).map(|named| &named.hostname)
    }

    /// Returns the endpoints with a host name.
    pub(super) fn named(&self, hostname: &str) -> impl Iterator<Item = &Endpoint> {
        let start = self.named.partition_point(|it| *it.hostname < *hostname);
        let named = self.named.iter().skip(start);
        let named = named.take_while(move |it| *it.hostname == *hostname);
        named.filter_map(|named| self.endpoints.get(named.endpoint as usize))
    }

    /// Returns all host names, each once.
    pub(super) fn hostnames(&self) -> impl Iterator<Item = &Arc<str>> {
        let groups = self
            .named
            .chunk_by(|one, other| one.hostname == other.hostname);
        groups.filter_map(|group| group.first().map(|named| &named.hostname))
    }
}

/// The content of a slice, without its owner.
#[derive(Debug, Default)]
pub(super) struct Content {
    ports: Ports,
    endpoints: Box<[Endpoint]>,
    named: Box<[Named]>,
}

impl Content {
    /// Returns the slice of a Service.
    pub(super) fn owned_by(self, owner: EntryId) -> Slice {
        Slice {
            owner,
            ready: self.endpoints.iter().filter(|it| it.is_ready).count(),
            ports: self.ports,
            endpoints: self.endpoints,
            named: self.named,
        }
    }

    /// Returns the content with these ports, addresses, conditions and host names.
    fn new(ports: Ports, mut endpoints: Vec<(IpAddr, bool, Option<Arc<str>>)>) -> Self {
        endpoints.sort_unstable();
        endpoints.dedup();
        let mut named = Vec::new();
        for (endpoint, (.., hostname)) in (0..).zip(&mut endpoints) {
            if let Some(hostname) = hostname.take() {
                named.push(Named { hostname, endpoint });
            }
        }
        named.sort_unstable_by(|one, other| {
            let key = |it: &Named| it.endpoint;
            one.hostname
                .cmp(&other.hostname)
                .then(key(one).cmp(&key(other)))
        });
        let mut endpoints: Box<[_]> = endpoints
            .into_iter()
            .map(|(addr, is_ready, _)| Endpoint {
                addr,
                is_ready,
                named: None,
            })
            .collect();
        for (position, named) in (1..).zip(&named) {
            if let Some(endpoint) = endpoints.get_mut(named.endpoint as usize) {
                endpoint.named = NonZeroU32::new(position);
            }
        }
        Self {
            ports,
            endpoints,
            named: named.into(),
        }
    }
}

/// Result of parsing a slice.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Name of the Service. `None` if the slice has no records.
    pub(super) service: Option<Box<str>>,
    /// Content of the slice.
    pub(super) content: Content,
    /// Warnings.
    pub(super) warnings: Vec<Warning>,
}

impl Read {
    /// Parses a slice.
    pub(super) fn of(object: &api::EndpointSlice, name: &ObjectName) -> Self {
        let service = object.metadata.label(api::MetadataKey::ServiceName);
        let Some(service) = service.filter(|service| !service.is_empty()) else {
            return Self::default();
        };
        let mut warnings = Warnings::about(Kind::EndpointSlice, name);
        let family = match object.address_type.family() {
            _ if !is_label(&name.namespace) => {
                let problem = Problem::BadName((&*name.namespace).into());
                warnings.push(Field::plain("metadata.namespace"), problem);
                None
            }
            _ if !is_label(service) => {
                let field = Field::plain("metadata.labels[kubernetes.io/service-name]");
                warnings.push(field, Problem::BadName(service.into()));
                None
            }
            None => {
                let problem = Problem::Unknown(object.address_type.as_str().into());
                warnings.push(Field::plain("addressType"), problem);
                None
            }
            known => known,
        };
        let content = family.map(|family| {
            let ports = Ports::of_slice(&object.ports, &mut warnings);
            Content::new(ports, endpoints(&object.endpoints, family, &mut warnings))
        });
        Self {
            service: content.is_some().then(|| service.into()),
            content: content.unwrap_or_default(),
            warnings: warnings.into_found(),
        }
    }
}

fn endpoints(
    endpoints: &[api::SliceEndpoint],
    family: Family,
    warnings: &mut Warnings<'_>,
) -> Vec<(IpAddr, bool, Option<Arc<str>>)> {
    let mut read = Vec::with_capacity(endpoints.len());
    for (index, endpoint) in endpoints.iter().enumerate() {
        let hostname = hostname(endpoint, index, warnings);
        let is_ready = endpoint.conditions.ready.unwrap_or(true);
        for text in &endpoint.addresses {
            match address(text, family) {
                Ok(addr) => read.push((addr, is_ready, hostname.clone())),
                Err(problem) => {
                    let field = Field::member("endpoints[].addresses", index);
                    warnings.push(field, problem);
                }
            }
        }
    }
    read
}

fn hostname(
    endpoint: &api::SliceEndpoint,
    index: usize,
    warnings: &mut Warnings<'_>,
) -> Option<Arc<str>> {
    let hostname = endpoint.hostname.as_deref();
    let hostname = hostname.filter(|hostname| !hostname.is_empty())?;
    if is_label(hostname) {
        return Some(hostname.into());
    }
    let field = Field::member("endpoints[].hostname", index);
    warnings.push(field, Problem::BadName(hostname.into()));
    None
}

fn address(text: &str, family: Family) -> Result<IpAddr, Problem> {
    let addr = parse_address(text).ok_or_else(|| Problem::BadAddress(text.into()))?;
    match SpecialAddress::of(addr) {
        _ if Family::of(addr) != family => Err(Problem::WrongFamily(addr, family)),
        Some(special) => Err(Problem::SpecialAddress(addr, special)),
        None => Ok(addr),
    }
}
