//! Families and cluster IPs of a Service.

use std::fmt;
use std::net::IpAddr;

use vipline_inet::Family;

use crate::{AllocationError, ServiceType};

/// `ipFamilyPolicy` of a Service.
///
/// Exhaustive: the API has three policies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FamilyPolicy {
    /// One family.
    SingleStack,
    /// Both families if the cluster has them, otherwise one.
    PreferDualStack,
    /// Both families.
    RequireDualStack,
}

/// Address fields of a Service, as submitted or as stored.
///
/// Exhaustive: callers copy every field of their Service and must not miss a new one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressSpec {
    /// `type`.
    pub service_type: ServiceType,
    /// Whether `clusterIP` is `None`.
    pub is_headless: bool,
    /// Whether the Service selects Pods.
    pub has_selector: bool,
    /// `ipFamilyPolicy`.
    pub policy: Option<FamilyPolicy>,
    /// `ipFamilies`.
    pub families: Vec<Family>,
    /// `clusterIPs`; empty if the Service is headless.
    ///
    /// Parse each address with [`parse_address`](crate::parse_address).
    pub addresses: Vec<IpAddr>,
}

/// The plan for the families and addresses of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct AddressPlan {
    /// Whether the Service is headless, even if an update omits `clusterIP`.
    pub is_headless: bool,
    /// `ipFamilyPolicy`. `None` for an `ExternalName`.
    pub policy: Option<FamilyPolicy>,
    /// `ipFamilies`.
    pub families: Vec<Family>,
    /// Requested address of each family. Empty for a headless Service.
    pub addresses: Vec<AddressRequest>,
    /// Addresses to release after the Service was stored.
    pub released: Vec<IpAddr>,
}

/// A request for an address of a Service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AddressRequest {
    /// Keeps an allocated address.
    Keep(IpAddr),
    /// Allocates a specific address.
    Static(IpAddr),
    /// Allocates any address of a family.
    Dynamic(Family),
}

impl AddressRequest {
    /// Returns the family of the address.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Keep(address) | Self::Static(address) => Family::of(address),
            Self::Dynamic(family) => family,
        }
    }
}

impl fmt::Display for AddressRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(address) | Self::Static(address) => write!(f, "{address}"),
            Self::Dynamic(family) => write!(f, "an {family} address"),
        }
    }
}

const ADDRESSES: &str = "spec.clusterIPs";
const FAMILIES: &str = "spec.ipFamilies";
const POLICY: &str = "spec.ipFamilyPolicy";

impl AddressSpec {
    /// Plans the addresses of a Service.
    ///
    /// `cluster` holds the one or two families of the cluster, the default family first.
    /// `before` is the stored Service of an update.
    /// An update that omits `clusterIPs` keeps them, and a headless Service stays
    /// headless.
    /// An update that omits `ipFamilies` does not keep them: the families follow from the
    /// addresses, or for a headless Service from the defaults of a new Service.
    ///
    /// # Errors
    ///
    /// An [`AllocationError`] that names the invalid field.
    pub fn plan(
        &self,
        cluster: &[Family],
        before: Option<&Self>,
    ) -> Result<AddressPlan, AllocationError> {
        let before = before.filter(|before| !before.is_external_name());
        if self.is_external_name() {
            return self.plan_external_name(before);
        }
        let mut spec = self.clone();
        spec.keep(before);
        let policy = spec.policy_after(before);
        // A Service does not change if only the families of the cluster change.
        if !spec.is_settled(before) {
            spec.check()?;
            spec.check_unchanged(before)?;
            spec.reduce(policy, before)?;
            spec.complete(policy, cluster)?;
        }
        let had = before.map_or(&[][..], |before| &before.addresses);
        let addresses = match spec.is_headless {
            true => Vec::new(),
            false => spec.requests(had),
        };
        let released = had.iter().copied();
        let released = released.filter(|address| !spec.addresses.contains(address));
        Ok(AddressPlan {
            is_headless: spec.is_headless,
            released: released.collect(),
            policy: Some(policy),
            families: spec.families,
            addresses,
        })
    }

    /// Plans an `ExternalName`, which releases the addresses of the Service.
    ///
    /// A field with the stored value is dropped. Any other value is an error.
    fn plan_external_name(&self, before: Option<&Self>) -> Result<AddressPlan, AllocationError> {
        let is_kept =
            |is_same: fn(&Self, &Self) -> bool| before.is_some_and(|one| is_same(self, one));
        let forbidden = [
            (
                ADDRESSES,
                (self.is_headless || !self.addresses.is_empty())
                    && !is_kept(|now, before| {
                        now.is_headless == before.is_headless && now.addresses == before.addresses
                    }),
            ),
            (
                FAMILIES,
                !self.families.is_empty()
                    && !is_kept(|now, before| now.families == before.families),
            ),
            (
                POLICY,
                self.policy.is_some() && !is_kept(|now, before| now.policy == before.policy),
            ),
        ];
        if let Some((field, _)) = forbidden
            .into_iter()
            .find(|(_, is_forbidden)| *is_forbidden)
        {
            return Err(AllocationError::ExternalName { field });
        }
        Ok(AddressPlan {
            released: before.map_or_else(Vec::new, |before| before.addresses.clone()),
            ..AddressPlan::default()
        })
    }

    fn is_external_name(&self) -> bool {
        self.service_type == ServiceType::ExternalName
    }

    /// Copies `clusterIPs` or `None` from the stored Service if an update omits them.
    fn keep(&mut self, before: Option<&Self>) {
        if let Some(before) = before
            && self.addresses.is_empty()
            && !self.is_headless
        {
            self.is_headless = before.is_headless;
            self.addresses.clone_from(&before.addresses);
        }
    }

    /// Checks that type, addresses and families are consistent.
    fn check(&self) -> Result<(), AllocationError> {
        if self.is_headless && self.service_type != ServiceType::ClusterIp {
            let service_type = self.service_type;
            return Err(AllocationError::Headless { service_type });
        }
        let families: Vec<Family> = self.addresses.iter().copied().map(Family::of).collect();
        for (field, families) in [(ADDRESSES, &families), (FAMILIES, &self.families)] {
            if families.len() > 2 || matches!(families[..], [first, second] if first == second) {
                return Err(AllocationError::TooManyEntries { field });
            }
        }
        for (address, family) in self.addresses.iter().zip(&self.families) {
            if Family::of(*address) != *family {
                let (address, family) = (*address, *family);
                return Err(AllocationError::MismatchedEntry { address, family });
            }
        }
        Ok(())
    }

    /// Checks that no address or family is replaced. A second one may be added or
    /// removed.
    ///
    /// A headless Service may change its families, but stays headless.
    fn check_unchanged(&self, before: Option<&Self>) -> Result<(), AllocationError> {
        let Some(before) = before else {
            return Ok(());
        };
        if self.is_headless != before.is_headless {
            let (field, index) = (ADDRESSES, 0);
            return Err(AllocationError::ImmutableEntry { field, index });
        }
        if self.is_headless {
            return Ok(());
        }
        let address = replaced(&before.addresses, &self.addresses).map(|index| (ADDRESSES, index));
        let family = replaced(&before.families, &self.families).map(|index| (FAMILIES, index));
        match address.or(family) {
            Some((field, index)) => Err(AllocationError::ImmutableEntry { field, index }),
            None => Ok(()),
        }
    }

    /// Returns the policy: the requested, the stored, or the default one.
    fn policy_after(&self, before: Option<&Self>) -> FamilyPolicy {
        let former = before.and_then(|before| before.policy);
        self.policy.or(former).unwrap_or_else(|| {
            if self.is_headless_without_selector() {
                FamilyPolicy::RequireDualStack
            } else {
                FamilyPolicy::SingleStack
            }
        })
    }

    /// Returns whether the Service is headless without selector.
    fn is_headless_without_selector(&self) -> bool {
        self.is_headless && !self.has_selector
    }

    /// Returns whether an update repeats `PreferDualStack`, type, addresses and
    /// families of the stored Service.
    ///
    /// Such a Service keeps its families when the cluster changes.
    /// An update that omits one of the fields gets the current families of the cluster.
    fn is_settled(&self, before: Option<&Self>) -> bool {
        let prefers = Some(FamilyPolicy::PreferDualStack);
        self.policy == prefers
            && before.is_some_and(|before| {
                (before.policy.is_none() || before.policy == prefers)
                    && before.service_type == self.service_type
                    && before.is_headless == self.is_headless
                    && before.families == self.families
                    && before.addresses == self.addresses
            })
    }

    /// Removes the second entries if the policy becomes `SingleStack`.
    fn reduce(
        &mut self,
        policy: FamilyPolicy,
        before: Option<&Self>,
    ) -> Result<(), AllocationError> {
        let is_single = policy == FamilyPolicy::SingleStack;
        if let Some(before) = before {
            if is_single {
                // Unchanged entries are truncated, changed ones are errors below.
                if self.addresses == before.addresses {
                    self.addresses.truncate(1);
                }
                if self.families == before.families {
                    self.families.truncate(1);
                }
            } else if before.addresses.len() == 2 && self.addresses.len() == 1 {
                return Err(AllocationError::Reduced { field: ADDRESSES });
            } else if before.families.len() == 2 && self.families.len() == 1 {
                return Err(AllocationError::Reduced { field: FAMILIES });
            }
        }
        if is_single && self.addresses.len() == 2 {
            return Err(AllocationError::SingleStack { field: ADDRESSES });
        }
        if is_single && self.families.len() == 2 {
            return Err(AllocationError::SingleStack { field: FAMILIES });
        }
        Ok(())
    }

    /// Adds missing families.
    fn complete(
        &mut self,
        policy: FamilyPolicy,
        cluster: &[Family],
    ) -> Result<(), AllocationError> {
        let given = self.families.len();
        let addresses = self.addresses.iter().skip(given);
        self.families.extend(addresses.copied().map(Family::of));
        let is_free = self.is_headless_without_selector();
        if !is_free {
            if policy == FamilyPolicy::RequireDualStack && cluster.len() < 2 {
                return Err(AllocationError::NotDualStack);
            }
            if let Some(family) = self.families.iter().find(|one| !cluster.contains(one)) {
                return Err(AllocationError::NotConfigured { family: *family });
            }
        }
        if self.families.is_empty() {
            self.families.extend(cluster.first());
        }
        let is_dual = policy != FamilyPolicy::SingleStack && (is_free || cluster.len() == 2);
        if is_dual && let [only] = self.families[..] {
            self.families.push(only.other());
        }
        Ok(())
    }

    /// Returns the request for each family.
    fn requests(&self, had: &[IpAddr]) -> Vec<AddressRequest> {
        let places = self.families.iter().enumerate();
        places
            .map(|(place, family)| match self.addresses.get(place) {
                Some(address) if had.contains(address) => AddressRequest::Keep(*address),
                Some(address) => AddressRequest::Static(*address),
                None => AddressRequest::Dynamic(*family),
            })
            .collect()
    }
}

/// Returns the index of the first changed entry.
fn replaced<T: PartialEq>(before: &[T], now: &[T]) -> Option<usize> {
    before
        .iter()
        .zip(now)
        .position(|(before, now)| before != now)
}

#[cfg(test)]
mod tests;
