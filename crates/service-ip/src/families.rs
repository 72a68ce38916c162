//! Which families a Service has addresses of, and which addresses it asks for.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

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

/// What a Service says about its addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressSpec {
    /// Whether it has addresses at all.
    pub kind: AddressKind,
    /// Whether it selects Pods.
    pub has_selector: bool,
    /// Its `ipFamilyPolicy`.
    pub policy: Option<FamilyPolicy>,
    /// Its `ipFamilies`.
    pub families: Vec<Family>,
    /// Its `clusterIPs`.
    pub addresses: Vec<IpAddr>,
}

/// Whether a Service has addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddressKind {
    /// It has: `ClusterIP`, `NodePort` and `LoadBalancer`.
    Virtual,
    /// Its `clusterIP` is `None`.
    Headless,
    /// It is an `ExternalName`.
    ExternalName,
}

/// What follows from what a Service says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AddressPlan {
    /// The `ipFamilyPolicy`; none of an `ExternalName`.
    pub policy: Option<FamilyPolicy>,
    /// The `ipFamilies`, the first of which never changes.
    pub families: Vec<Family>,
    /// What address there is to be of each family; none of a headless Service.
    pub addresses: Vec<Wanted>,
    /// Addresses to be released when the Service is stored.
    pub released: Vec<IpAddr>,
}

/// An address that a Service is to have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// It has it already.
    Kept(IpAddr),
    /// This one.
    Static(IpAddr),
    /// Any of a family.
    Dynamic(Family),
}

impl Wanted {
    /// Returns its family.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Kept(address) | Self::Static(address) => Family::of(address),
            Self::Dynamic(family) => family,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(address) | Self::Static(address) => write!(f, "{address}"),
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
    /// The first entry is another than before.
    #[error("{field}: the first entry may not change once set")]
    Immutable {
        /// The field of the Service.
        field: &'static str,
    },
}

const ADDRESSES: &str = "spec.clusterIPs";
const FAMILIES: &str = "spec.ipFamilies";

impl AddressSpec {
    /// Returns what follows from this in a cluster with addresses of one family
    /// or two, the first of which is the usual one.
    ///
    /// `before` is what the Service said and got before.
    ///
    /// # Errors
    ///
    /// An [`AddressError`] that names the field.
    pub fn plan(
        &self,
        cluster: &[Family],
        before: Option<&Self>,
    ) -> Result<AddressPlan, AddressError> {
        let had = before.filter(|before| before.kind == AddressKind::Virtual);
        if self.kind == AddressKind::ExternalName {
            let released = had.map_or_else(Vec::new, |before| before.addresses.clone());
            return Ok(AddressPlan {
                released,
                ..AddressPlan::default()
            });
        }
        let mut spec = self.clone();
        spec.keep(before);
        spec.check()?;
        spec.check_first(before)?;
        let policy = spec.policy_after(before);
        // That the cluster has changed is no reason to give or take addresses.
        if !spec.is_settled(policy, before) {
            spec.reduce(policy, before)?;
            spec.complete(policy, cluster)?;
        }
        let addresses = match spec.kind {
            AddressKind::Virtual => spec.wanted(had),
            _ => Vec::new(),
        };
        let is_kept = |address: &IpAddr| spec.addresses.contains(address);
        let released = had.map_or(&[][..], |before| &before.addresses);
        let released = released.iter().copied().filter(|address| !is_kept(address));
        Ok(AddressPlan {
            released: released.collect(),
            policy: Some(policy),
            families: spec.families,
            addresses,
        })
    }

    /// Takes over what an update leaves out.
    fn keep(&mut self, before: Option<&Self>) {
        let Some(before) = before.filter(|before| before.kind == self.kind) else {
            return;
        };
        if self.addresses.is_empty() {
            self.addresses.clone_from(&before.addresses);
            if self.families.is_empty() {
                self.families.clone_from(&before.families);
            }
        }
    }

    /// Checks that addresses and families fit each other.
    fn check(&self) -> Result<(), AddressError> {
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

    /// Checks that the first family and address are those from before.
    fn check_first(&self, before: Option<&Self>) -> Result<(), AddressError> {
        let Some(before) = before.filter(|before| before.kind == self.kind) else {
            return Ok(());
        };
        if changes(before.addresses.first(), self.addresses.first()) {
            return Err(AddressError::Immutable { field: ADDRESSES });
        }
        if changes(before.families.first(), self.families.first()) {
            return Err(AddressError::Immutable { field: FAMILIES });
        }
        Ok(())
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
        self.kind == AddressKind::Headless && !self.has_selector
    }

    /// Tells whether a Service that prefers both families is as it was.
    fn is_settled(&self, policy: FamilyPolicy, before: Option<&Self>) -> bool {
        policy == FamilyPolicy::PreferDualStack
            && before.is_some_and(|before| {
                before.kind == self.kind
                    && before.policy == Some(policy)
                    && !before.families.is_empty()
                    && before.families == self.families
                    && before.addresses == self.addresses
            })
    }

    /// Leaves the first entries only, if that is asked for.
    fn reduce(&mut self, policy: FamilyPolicy, before: Option<&Self>) -> Result<(), AddressError> {
        let is_single = policy == FamilyPolicy::SingleStack;
        if let Some(before) = before.filter(|before| before.kind == self.kind) {
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
    fn wanted(&self, had: Option<&Self>) -> Vec<Wanted> {
        let places = self.families.iter().enumerate();
        places
            .map(|(place, family)| match self.addresses.get(place) {
                Some(address) if had.is_some_and(|had| had.addresses.contains(address)) => {
                    Wanted::Kept(*address)
                }
                Some(address) => Wanted::Static(*address),
                None => Wanted::Dynamic(*family),
            })
            .collect()
    }
}

/// Tells whether what there was is another now.
fn changes<T: PartialEq>(before: Option<&T>, now: Option<&T>) -> bool {
    matches!((before, now), (Some(before), Some(now)) if before != now)
}

#[cfg(test)]
mod tests;
