//! Served kinds of objects.

/// A kind of object, as an index into [`KINDS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Kind(usize);

/// Part of an object that a request writes; the other part is kept.
///
/// Objects without the subresource `status` have one part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Status,
    Rest,
}

struct Names {
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    status: bool,
}

const KINDS: [Names; 8] = [
    with_status(names("v1", "services", "Service", true)),
    with_status(names("v1", "nodes", "Node", false)),
    names("v1", "namespaces", "Namespace", false),
    names(
        "discovery.k8s.io/v1",
        "endpointslices",
        "EndpointSlice",
        true,
    ),
    with_status(names(
        "networking.k8s.io/v1",
        "servicecidrs",
        "ServiceCIDR",
        false,
    )),
    names("networking.k8s.io/v1", "ipaddresses", "IPAddress", false),
    names("events.k8s.io/v1", "events", "Event", true),
    names("v1", "events", "Event", true),
];

const fn names(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> Names {
    Names {
        api_version,
        plural,
        kind,
        namespaced,
        status: false,
    }
}

const fn with_status(names: Names) -> Names {
    Names {
        status: true,
        ..names
    }
}

impl Kind {
    /// Returns all kinds.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..KINDS.len()).map(Self)
    }

    /// Finds a kind by the API version and plural name in paths.
    pub(crate) fn by_plural(api_version: &str, plural: &str) -> Option<Self> {
        Self::all().find(|kind| kind.api_version() == api_version && kind.plural() == plural)
    }

    /// Finds a kind by the name in objects, such as `Service`.
    ///
    /// Without an API version, `Event` is the kind of `events.k8s.io/v1`.
    pub(crate) fn by_name(api_version: Option<&str>, name: &str) -> Option<Self> {
        Self::all().find(|kind| {
            kind.name() == name && api_version.is_none_or(|version| version == kind.api_version())
        })
    }

    /// Returns the index among all kinds.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// Returns the group and version: `discovery.k8s.io/v1`.
    pub(crate) fn api_version(self) -> &'static str {
        KINDS[self.0].api_version
    }

    /// Returns the group, which is empty for the core group.
    pub(crate) fn group(self) -> &'static str {
        self.api_version()
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// Returns the name in paths: `services`.
    pub(crate) fn plural(self) -> &'static str {
        KINDS[self.0].plural
    }

    /// Returns the name in objects: `Service`.
    pub(crate) fn name(self) -> &'static str {
        KINDS[self.0].kind
    }

    /// Returns whether the kind is namespaced.
    pub(crate) fn namespaced(self) -> bool {
        KINDS[self.0].namespaced
    }

    /// Returns whether the kind has the subresource `status`.
    pub(crate) fn has_status(self) -> bool {
        KINDS[self.0].status
    }

    /// Returns the supported fields of field selectors.
    pub(crate) fn fields(self) -> impl Iterator<Item = &'static str> {
        let of_services: &[_] = match self.name() {
            "Service" => &["spec.clusterIP", "spec.type"],
            _ => &[],
        };
        let of_all = ["metadata.name", "metadata.namespace"];
        of_all.into_iter().chain(of_services.iter().copied())
    }
}
