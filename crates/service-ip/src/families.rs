//! Which families a Service has addresses of, and which addresses it asks for.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use crate::ServiceType;

/// A family of addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns what Kubernetes calls it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the other family.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// How many families a Service has: its `ipFamilyPolicy`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FamilyPolicy {
    /// One.
    SingleStack,
    /// Both, if the cluster has them.
    PreferDualStack,
    /// Both.
    RequireDualStack,
}

/// Address fields of a Service, as submitted or as stored.
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
    /// [`parse_address`](crate::parse_address) reads an address in the form that
    /// the API stores.
    pub addresses: Vec<IpAddr>,
}

/// What follows from what a Service says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AddressPlan {
    /// Whether the Service is headless, also if an update omits `clusterIP`.
    pub is_headless: bool,
    /// The `ipFamilyPolicy`; none of an `ExternalName`.
    pub policy: Option<FamilyPolicy>,
    /// The `ipFamilies`.
    pub families: Vec<Family>,
    /// What address there is to be of each family; none of a headless Service.
    pub addresses: Vec<AddressRequest>,
    /// Addresses to be released when the Service is stored.
    pub released: Vec<IpAddr>,
}

/// An address that a Service is to have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddressRequest {
    /// It has it already.
    Keep(IpAddr),
    /// This one.
    Static(IpAddr),
    /// Any of a family.
    Dynamic(Family),
}

impl AddressRequest {
    /// Returns its family.
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
            Self::Dynamic(family) => write!(f, "an address of {family}"),
        }
    }
}

/// Why a Service cannot have the addresses it asks for.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AddressError {
    /// There are more than two addresses or families, or two of one family.
    #[error("{field} may have one entry for each family")]
    TooMany {
        /// The field of the Service.
        field: &'static str,
    },
    /// An address and the family at the same place do not fit.
    #[error("spec.clusterIPs: {address} is not of the family {family}")]
    Mismatch {
        /// The address.
        address: IpAddr,
        /// The family at its place.
        family: Family,
    },
    /// Two entries with a policy for one.
    #[error(
        "spec.ipFamilyPolicy must be RequireDualStack or PreferDualStack \
         when {field} has two entries"
    )]
    SingleStack {
        /// The field of the Service.
        field: &'static str,
    },
    /// The second entry was removed without a policy for one.
    #[error("spec.ipFamilyPolicy must be SingleStack to release the second entry of {field}")]
    Reduced {
        /// The field of the Service.
        field: &'static str,
    },
    /// Both families are required, and the cluster has one.
    #[error("this cluster is not configured for dual-stack services")]
    NotDualStack,
    /// The cluster does not have a family.
    #[error("{family} is not configured on this cluster")]
    NotConfigured {
        /// The family.
        family: Family,
    },
    /// An entry differs from the stored one.
    #[error("{field}[{index}] may not change once set")]
    Immutable {
        /// The field of the Service.
        field: &'static str,
        /// The position of the entry.
        index: usize,
    },
    /// `clusterIP: None` with a type that needs an address.
    #[error("spec.clusterIPs[0] may not be None for a Service of type {service_type}")]
    Headless {
        /// The type.
        service_type: ServiceType,
    },
    /// A field that an `ExternalName` cannot have.
    #[error("{field} may not be set for a Service of type ExternalName")]
    ExternalName {
        /// The field of the Service.
        field: &'static str,
    },
}

const ADDRESSES: &str = "spec.clusterIPs";
const FAMILIES: &str = "spec.ipFamilies";
const POLICY: &str = "spec.ipFamilyPolicy";

impl AddressSpec {
    /// Plans the addresses of a Service in a cluster with one or two families,
    /// the default family first.
    ///
    /// `before` is the stored Service of an update.
    /// An update that omits `clusterIPs` keeps them, and a headless Service stays
    /// headless.
    /// `ipFamilies` are not kept: without them a Service has the families of its
    /// addresses, and a headless one those of a new Service.
    ///
    /// # Errors
    ///
    /// An [`AddressError`] that names the field.
    pub fn plan(
        &self,
        cluster: &[Family],
        before: Option<&Self>,
    ) -> Result<AddressPlan, AddressError> {
        let before = before.filter(|before| !before.is_external_name());
        if self.is_external_name() {
            return self.plan_external_name(before);
        }
        let mut spec = self.clone();
        spec.keep(before);
        let policy = spec.policy_after(before);
        // A cluster that becomes dual-stack is no reason to add an address.
        if !spec.is_settled(before) {
            spec.check()?;
            spec.check_unchanged(before)?;
            spec.reduce(policy, before)?;
            spec.complete(policy, cluster)?;
        }
        let had = before.map_or(&[][..], |before| &before.addresses);
        let addresses = match spec.is_headless {
            true => Vec::new(),
            false => spec.wanted(had),
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

    /// Plans an `ExternalName`, which releases what the Service had.
    ///
    /// A field with the value from before is dropped; another value is an error.
    fn plan_external_name(&self, before: Option<&Self>) -> Result<AddressPlan, AddressError> {
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
            return Err(AddressError::ExternalName { field });
        }
        Ok(AddressPlan {
            released: before.map_or_else(Vec::new, |before| before.addresses.clone()),
            ..AddressPlan::default()
        })
    }

    fn is_external_name(&self) -> bool {
        self.service_type == ServiceType::ExternalName
    }

    /// Takes over the addresses that an update omits, or their absence.
    fn keep(&mut self, before: Option<&Self>) {
        if let Some(before) = before
            && self.addresses.is_empty()
            && !self.is_headless
        {
            self.is_headless = before.is_headless;
            self.addresses.clone_from(&before.addresses);
        }
    }

    /// Checks that type, addresses and families fit each other.
    fn check(&self) -> Result<(), AddressError> {
        if self.is_headless && self.service_type != ServiceType::ClusterIp {
            let service_type = self.service_type;
            return Err(AddressError::Headless { service_type });
        }
        let families: Vec<Family> = self.addresses.iter().copied().map(Family::of).collect();
        for (field, families) in [(ADDRESSES, &families), (FAMILIES, &self.families)] {
            if families.len() > 2 || matches!(families[..], [first, second] if first == second) {
                return Err(AddressError::TooMany { field });
            }
        }
        for (address, family) in self.addresses.iter().zip(&self.families) {
            if Family::of(*address) != *family {
                let (address, family) = (*address, *family);
                return Err(AddressError::Mismatch { address, family });
            }
        }
        Ok(())
    }

    /// Checks that no address or family is replaced; a second one may come or go.
    ///
    /// A headless Service may change its families, but stays headless.
    fn check_unchanged(&self, before: Option<&Self>) -> Result<(), AddressError> {
        let Some(before) = before else {
            return Ok(());
        };
        if self.is_headless != before.is_headless {
            let (field, index) = (ADDRESSES, 0);
            return Err(AddressError::Immutable { field, index });
        }
        if self.is_headless {
            return Ok(());
        }
        let address = replaced(&before.addresses, &self.addresses).map(|index| (ADDRESSES, index));
        let family = replaced(&before.families, &self.families).map(|index| (FAMILIES, index));
        match address.or(family) {
            Some((field, index)) => Err(AddressError::Immutable { field, index }),
            None => Ok(()),
        }
    }

    /// Returns the policy: that from before, if none is said.
    fn policy_after(&self, before: Option<&Self>) -> FamilyPolicy {
        let former = before.and_then(|before| before.policy);
        self.policy.or(former).unwrap_or_else(|| {
            if self.is_free() {
                FamilyPolicy::RequireDualStack
            } else {
                FamilyPolicy::SingleStack
            }
        })
    }

    /// Tells whether its addresses are only what its endpoints say.
    fn is_free(&self) -> bool {
        self.is_headless && !self.has_selector
    }

    /// Returns whether an update repeats `PreferDualStack`, type, addresses and
    /// families of the stored Service.
    ///
    /// Such a Service keeps its families when the cluster changes.
    /// An update that omits one of the fields asks for the families that the
    /// cluster has now.
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

    /// Leaves the first entries only, if that is asked for.
    fn reduce(&mut self, policy: FamilyPolicy, before: Option<&Self>) -> Result<(), AddressError> {
        let is_single = policy == FamilyPolicy::SingleStack;
        if let Some(before) = before {
            if is_single {
                // To say nothing else is to mean it.
                if self.addresses == before.addresses {
                    self.addresses.truncate(1);
                }
                if self.families == before.families {
                    self.families.truncate(1);
                }
            } else if before.addresses.len() == 2 && self.addresses.len() == 1 {
                return Err(AddressError::Reduced { field: ADDRESSES });
            } else if before.families.len() == 2 && self.families.len() == 1 {
                return Err(AddressError::Reduced { field: FAMILIES });
            }
        }
        if is_single && self.addresses.len() == 2 {
            return Err(AddressError::SingleStack { field: ADDRESSES });
        }
        if is_single && self.families.len() == 2 {
            return Err(AddressError::SingleStack { field: FAMILIES });
        }
        Ok(())
    }

    /// Adds the families that are not said.
    fn complete(&mut self, policy: FamilyPolicy, cluster: &[Family]) -> Result<(), AddressError> {
        let said = self.families.len();
        let addresses = self.addresses.iter().skip(said);
        self.families.extend(addresses.copied().map(Family::of));
        let is_free = self.is_free();
        if !is_free {
            if policy == FamilyPolicy::RequireDualStack && cluster.len() < 2 {
                return Err(AddressError::NotDualStack);
            }
            if let Some(family) = self.families.iter().find(|one| !cluster.contains(one)) {
                return Err(AddressError::NotConfigured { family: *family });
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

    /// Returns what address there is to be of each family.
    fn wanted(&self, had: &[IpAddr]) -> Vec<AddressRequest> {
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

/// Returns the position of the first entry that is not the one from before.
fn replaced<T: PartialEq>(before: &[T], now: &[T]) -> Option<usize> {
    before
        .iter()
        .zip(now)
        .position(|(before, now)| before != now)
}

#[cfg(test)]
mod tests;
