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
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
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
mod tests {
    use Family::{V4, V6};
    use FamilyPolicy::{PreferDualStack, RequireDualStack, SingleStack};
    use Wanted::{Dynamic, Kept, Static};

    use super::*;

    const DUAL: &[Family] = &[V4, V6];

    fn spec(policy: Option<FamilyPolicy>, families: &[Family], addresses: &[&str]) -> AddressSpec {
        AddressSpec {
            kind: AddressKind::Virtual,
            has_selector: true,
            policy,
            families: families.to_vec(),
            addresses: addresses.iter().map(|address| ip(address)).collect(),
        }
    }

    fn headless(policy: Option<FamilyPolicy>, families: &[Family]) -> AddressSpec {
        AddressSpec {
            kind: AddressKind::Headless,
            ..spec(policy, families, &[])
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(
        spec: &AddressSpec,
        cluster: &[Family],
        before: Option<&AddressSpec>,
    ) -> (Vec<Family>, Vec<Wanted>, Vec<IpAddr>) {
        let plan = spec.plan(cluster, before).unwrap();
        (plan.families, plan.addresses, plan.released)
    }

    #[track_caller]
    fn refusal(spec: &AddressSpec, cluster: &[Family], before: Option<&AddressSpec>) -> String {
        spec.plan(cluster, before).unwrap_err().to_string()
    }

    #[test]
    fn one_that_says_nothing_gets_the_usual_family() {
        let silent = spec(None, &[], &[]);
        for (cluster, family) in [(&[V4][..], V4), (&[V6], V6), (&[V6, V4], V6)] {
            let plan = silent.plan(cluster, None).unwrap();
            assert_eq!(plan.policy, Some(SingleStack));
            assert_eq!(plan.addresses, [Dynamic(family)]);
        }
    }

    #[test]
    fn the_other_family_is_added_where_the_cluster_has_it() {
        for policy in [PreferDualStack, RequireDualStack] {
            let first = spec(Some(policy), &[V6], &[]);
            let expected = (vec![V6, V4], vec![Dynamic(V6), Dynamic(V4)], vec![]);
            assert_eq!(check(&first, DUAL, None), expected);
        }
        let prefers = spec(Some(PreferDualStack), &[], &["10.0.0.5"]);
        let alone = (vec![V4], vec![Static(ip("10.0.0.5"))], vec![]);
        assert_eq!(check(&prefers, &[V4], None), alone);
        let requires = spec(Some(RequireDualStack), &[], &[]);
        assert_eq!(
            refusal(&requires, &[V4], None),
            "this cluster is not configured for dual-stack services"
        );
    }

    #[test]
    fn addresses_tell_their_family() {
        let given = spec(Some(PreferDualStack), &[], &["fd00::5", "10.0.0.5"]);
        let expected = [Static(ip("fd00::5")), Static(ip("10.0.0.5"))];
        assert_eq!(given.plan(DUAL, None).unwrap().addresses, expected);
        for (given, part) in [
            (spec(None, &[], &["fd00::5"]), "IPv6 is not configured"),
            (spec(None, &[V6], &[]), "IPv6 is not configured"),
            (
                spec(None, &[V4], &["fd00::5"]),
                "fd00::5 is not of the family IPv4",
            ),
            (
                spec(None, &[], &["10.0.0.5", "10.0.0.6"]),
                "one entry for each family",
            ),
            (spec(None, &[V4, V6], &[]), "when spec.ipFamilies has two"),
            (
                spec(None, &[], &["10.0.0.5", "fd00::5"]),
                "when spec.clusterIPs has two",
            ),
        ] {
            let error = refusal(&given, &[V4], None);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn headless_ones_have_families_and_no_addresses() {
        let selects = headless(None, &[]);
        assert_eq!(check(&selects, DUAL, None), (vec![V4], vec![], vec![]));
        let free = AddressSpec {
            has_selector: false,
            ..selects
        };
        // Also where the cluster has one family.
        let plan = free.plan(&[V6], None).unwrap();
        assert_eq!(plan.policy, Some(RequireDualStack));
        assert_eq!((plan.families, plan.addresses), (vec![V6, V4], vec![]));
    }

    #[test]
    fn an_update_that_says_nothing_changes_nothing() {
        let before = spec(Some(RequireDualStack), &[V4, V6], &["10.0.0.5", "fd00::5"]);
        let kept = vec![Kept(ip("10.0.0.5")), Kept(ip("fd00::5"))];
        let expected = (vec![V4, V6], kept, vec![]);
        for silent in [
            spec(None, &[], &[]),
            spec(None, &[V4, V6], &[]),
            spec(None, &[], &["10.0.0.5", "fd00::5"]),
        ] {
            assert_eq!(check(&silent, DUAL, Some(&before)), expected);
        }
    }

    #[test]
    fn an_update_adds_and_releases_the_second_address() {
        let one = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
        let more = spec(Some(RequireDualStack), &[V4], &["10.0.0.5"]);
        let first = Kept(ip("10.0.0.5"));
        assert_eq!(
            check(&more, DUAL, Some(&one)),
            (vec![V4, V6], vec![first, Dynamic(V6)], vec![])
        );
        let two = spec(Some(RequireDualStack), &[V4, V6], &["10.0.0.5", "fd00::5"]);
        let released = (vec![V4], vec![first], vec![ip("fd00::5")]);
        let single = AddressSpec {
            policy: Some(SingleStack),
            ..two.clone()
        };
        assert_eq!(check(&single, DUAL, Some(&two)), released);
        assert_eq!(check(&one, DUAL, Some(&two)), released);
        assert_eq!(
            check(&spec(Some(SingleStack), &[V4], &[]), DUAL, Some(&two)),
            released
        );
        for reduced in [
            spec(None, &[V4], &["10.0.0.5"]),
            spec(None, &[], &["10.0.0.5"]),
            spec(None, &[V4], &[]),
        ] {
            assert!(refusal(&reduced, DUAL, Some(&two)).contains("must be SingleStack"));
        }
    }

    #[test]
    fn the_first_address_and_family_never_change() {
        let before = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
        for other in [
            spec(None, &[], &["10.0.0.6"]),
            spec(None, &[V6], &["fd00::5"]),
        ] {
            let error = refusal(&other, DUAL, Some(&before));
            assert!(
                error.contains("spec.clusterIPs: the first entry"),
                "{error}"
            );
        }
        let headless_before = headless(Some(SingleStack), &[V4]);
        let error = refusal(&headless(None, &[V6]), DUAL, Some(&headless_before));
        assert!(
            error.contains("spec.ipFamilies: the first entry"),
            "{error}"
        );
    }

    #[test]
    fn a_preference_is_not_followed_when_only_the_cluster_has_changed() {
        let one = spec(Some(PreferDualStack), &[V4], &["10.0.0.5"]);
        assert_eq!(
            check(&one, DUAL, Some(&one)),
            (vec![V4], vec![Kept(ip("10.0.0.5"))], vec![])
        );
        let two = spec(Some(PreferDualStack), &[V4, V6], &["10.0.0.5", "fd00::5"]);
        let kept = vec![Kept(ip("10.0.0.5")), Kept(ip("fd00::5"))];
        assert_eq!(check(&two, &[V4], Some(&two)), (vec![V4, V6], kept, vec![]));
    }

    #[test]
    fn addresses_come_and_go_with_the_type() {
        let external = AddressSpec {
            kind: AddressKind::ExternalName,
            ..spec(None, &[], &[])
        };
        let served = spec(Some(SingleStack), &[V4], &["10.0.0.5"]);
        let plan = external.plan(DUAL, Some(&served)).unwrap();
        assert_eq!(plan.released, [ip("10.0.0.5")]);
        assert_eq!((plan.policy, plan.addresses), (None, vec![]));
        let asks = spec(None, &[], &[]);
        let expected = (vec![V4], vec![Dynamic(V4)], vec![]);
        assert_eq!(check(&asks, DUAL, Some(&external)), expected);
    }
}
