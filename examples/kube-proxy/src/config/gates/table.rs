//! The feature gates of Kubernetes 1.36, of all components.
//!
//! kind, kubeadm and others write one list of gates into the configuration of every
//! component, so a proxy must know the gates of the kubelet, too. The table has each gate
//! that kube-proxy 1.36.2 registers: 148 in stages alpha and beta, which its `--help` lists,
//! 92 stable and deprecated ones, which it does not list, and the two for a whole stage.
//!
//! For the next version of Kubernetes, take its defaults at emulation version and minimum
//! compatibility version of the same minor number and the one before.

/// A feature gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) stage: Stage,
    /// State of a gate that is not configured.
    pub(super) default: bool,
    /// Whether only the default can be configured.
    pub(super) is_locked: bool,
}

/// Maturity of a feature.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// `AllAlpha` sets its gate.
    Alpha,
    /// `AllBeta` sets its gate.
    Beta,
    /// Generally available. Its gate vanishes in a later release.
    Stable,
    /// Its gate vanishes in a later release.
    Deprecated,
}

impl Stage {
    /// Returns the label `stage` of metric `kubernetes_feature_enabled`.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

const fn alpha(name: &'static str) -> Spec {
    spec(name, Stage::Alpha, false, false)
}

const fn beta(name: &'static str) -> Spec {
    spec(name, Stage::Beta, true, false)
}

/// A beta feature that is off by default.
const fn beta_off(name: &'static str) -> Spec {
    spec(name, Stage::Beta, false, false)
}

/// A stable feature that can still be disabled.
const fn stable(name: &'static str) -> Spec {
    spec(name, Stage::Stable, true, false)
}

/// A stable feature that can no longer be disabled.
const fn locked(name: &'static str) -> Spec {
    spec(name, Stage::Stable, true, true)
}

const fn deprecated(name: &'static str, default: bool) -> Spec {
    spec(name, Stage::Deprecated, default, false)
}

const fn deprecated_locked(name: &'static str, default: bool) -> Spec {
    spec(name, Stage::Deprecated, default, true)
}

const fn spec(name: &'static str, stage: Stage, default: bool, is_locked: bool) -> Spec {
    Spec {
        name,
        stage,
        default,
        is_locked,
    }
}

/// Gates that set all gates of a stage which are not configured themselves.
pub(super) const ALL_ALPHA: &str = "AllAlpha";
pub(super) const ALL_BETA: &str = "AllBeta";

/// All gates, sorted by name.
pub(super) const GATES: [Spec; 242] = [
    beta("APIResponseCompression"),
    beta("APIServerIdentity"),
    locked("APIServerTracing"),
    alpha("APIServingWithRoutine"),
    deprecated_locked("AggregatedDiscoveryRemoveBetaType", true),
    alpha(ALL_ALPHA),
    beta_off(ALL_BETA),
    deprecated("AllowDNSOnlyNodeCSR", false),
    deprecated("AllowInsecureKubeletCertificateSigningRequests", false),
    deprecated_locked("AllowOverwriteTerminationGracePeriodSeconds", false),
    beta("AllowParsingUserUIDFromCertAuth"),
    stable("AllowServiceExternalIPs"),
    alpha("AllowUnsafeMalformedObjectDeletion"),
    locked("AnonymousAuthConfigurableEndpoints"),
    locked("AnyVolumeDataSource"),
    beta("AtomicFIFO"),
    locked("AuthorizeNodeWithSelectors"),
    beta("AuthorizePodWebsocketUpgradeCreatePermission"),
    locked("AuthorizeWithSelectors"),
    locked("BtreeWatchCache"),
    alpha("CBORServingAndStorage"),
    alpha("CPUManagerPolicyAlphaOptions"),
    beta("CPUManagerPolicyBetaOptions"),
    locked("CPUManagerPolicyOptions"),
    beta("CRDObservedGenerationTracking"),
    locked("CRDValidationRatcheting"),
    alpha("CRIListStreaming"),
    locked("CSIServiceAccountTokenSecrets"),
    alpha("CSIVolumeHealth"),
    deprecated("ChangeContainerStatusOnKubeletRestart", false),
    beta("ClearingNominatedNodeNameAfterBinding"),
    beta("ClientsAllowCARotation"),
    alpha("ClientsAllowCBOR"),
    beta("ClientsAllowTLSCacheGC"),
    alpha("ClientsPreferCBOR"),
    alpha("CloudControllerManagerWatchBasedRoutesReconciliation"),
    alpha("CloudControllerManagerWebhook"),
    beta_off("ClusterTrustBundle"),
    beta_off("ClusterTrustBundleProjection"),
    beta("ComponentFlagz"),
    beta("ComponentStatusz"),
    beta_off("ConcurrentWatchObjectDecode"),
    locked("ConsistentListFromCache"),
    beta("ConstrainedImpersonation"),
    beta("ContainerCheckpoint"),
    beta("ContainerRestartRules"),
    alpha("ContainerStopSignals"),
    beta("ContextualLogging"),
    alpha("ControllerManagerReleaseLeaderElectionLockOnExit"),
    beta_off("CoordinatedLeaderElection"),
    alpha("CrossNamespaceVolumeDataSource"),
    stable("CustomCPUCFSQuotaPeriod"),
    locked("CustomResourceFieldSelectors"),
    locked("DRAAdminAccess"),
    beta("DRAConsumableCapacity"),
    beta("DRADeviceBindingConditions"),
    beta_off("DRADeviceTaintRules"),
    beta("DRADeviceTaints"),
    beta("DRAExtendedResource"),
    alpha("DRAListTypeAttributes"),
    alpha("DRANodeAllocatableResources"),
    beta("DRAPartitionableDevices"),
    stable("DRAPrioritizedList"),
    beta("DRAResourceClaimDeviceStatus"),
    beta("DRAResourceClaimGranularStatusAuthorization"),
    alpha("DRAResourcePoolStatus"),
    beta("DRASchedulerFilterTimeout"),
    alpha("DRAWorkloadResourceClaims"),
    locked("DeclarativeValidation"),
    beta("DeclarativeValidationBeta"),
    deprecated("DeclarativeValidationTakeover", false),
    beta("DeploymentReplicaSetTerminatingReplicas"),
    beta("DetectCacheInconsistency"),
    locked("DisableAllocatorDualWrite"),
    deprecated("DisableCPUQuotaWithExclusiveCPUs", true),
    deprecated_locked("DisableNodeKubeProxyVersion", true),
    locked("DynamicResourceAllocation"),
    beta("EnvFiles"),
    alpha("EventedPLEG"),
    locked("ExecProbeTimeout"),
    beta("ExtendWebSocketsToKubelet"),
    locked("ExternalServiceAccountTokenSigner"),
    alpha("GangScheduling"),
    alpha("GenericWorkload"),
    deprecated_locked("GitRepoVolumeDriver", false),
    beta("GracefulNodeShutdown"),
    beta("GracefulNodeShutdownBasedOnPodPriority"),
    beta("HPAConfigurableTolerance"),
    alpha("HPAScaleToZero"),
    beta("HostnameOverride"),
    locked("ImageMaximumGCAge"),
    locked("ImageVolume"),
    alpha("ImageVolumeWithDigest"),
    locked("InOrderInformers"),
    beta("InOrderInformersBatchProcess"),
    beta("InPlacePodLevelResourcesVerticalScaling"),
    locked("InPlacePodVerticalScaling"),
    alpha("InPlacePodVerticalScalingExclusiveCPUs"),
    alpha("InPlacePodVerticalScalingExclusiveMemory"),
    beta("InPlacePodVerticalScalingInitContainers"),
    stable("InformerResourceVersion"),
    locked("JobBackoffLimitPerIndex"),
    locked("JobManagedBy"),
    locked("JobPodReplacementPolicy"),
    locked("JobSuccessPolicy"),
    deprecated("KMSv1", false),
    locked("KubeletCgroupDriverFromCRI"),
    beta("KubeletCrashLoopBackOffMax"),
    beta("KubeletEnsureSecretPulledImages"),
    locked("KubeletFineGrainedAuthz"),
    alpha("KubeletInUserNamespace"),
    locked("KubeletPSI"),
    locked("KubeletPodResourcesDynamicResources"),
    locked("KubeletPodResourcesGet"),
    deprecated("KubeletPodResourcesListUseActivePods", true),
    deprecated("KubeletRegistrationGetOnExistsOnly", false),
    beta("KubeletSeparateDiskGC"),
    beta("KubeletServiceAccountTokenForCredentialProviders"),
    locked("KubeletTracing"),
    beta("ListFromCacheSnapshot"),
    beta_off("LocalStorageCapacityIsolationFSQuotaMonitoring"),
    locked("LogarithmicScaleDown"),
    alpha("LoggingAlphaOptions"),
    beta("LoggingBetaOptions"),
    alpha("ManifestBasedAdmissionControlConfig"),
    locked("MatchLabelKeysInPodAffinity"),
    beta("MatchLabelKeysInPodTopologySpread"),
    beta("MatchLabelKeysInPodTopologySpreadSelectorMerge"),
    beta_off("MaxUnavailableStatefulSet"),
    alpha("MemoryQoS"),
    locked("MultiCIDRServiceAllocator"),
    locked("MutableCSINodeAllocatableCount"),
    alpha("MutablePVNodeAffinity"),
    beta("MutablePodResourcesForSuspendedJobs"),
    beta("MutableSchedulingDirectivesForSuspendedJobs"),
    stable("MutatingAdmissionPolicy"),
    locked("NFTablesProxyMode"),
    alpha("NativeHistograms"),
    beta("NodeDeclaredFeatures"),
    locked("NodeInclusionPolicyInPodTopologySpread"),
    locked("NodeLogQuery"),
    locked("NodeSwap"),
    beta("NominatedNodeNameForExpectation"),
    beta("OpenAPIEnums"),
    beta("OpportunisticBatching"),
    locked("OrderedNamespaceDeletion"),
    beta("PLEGOnDemandRelist"),
    alpha("PersistentVolumeClaimUnusedSinceTime"),
    alpha("PodAndContainerStatsFromCRI"),
    beta_off("PodCertificateRequest"),
    beta("PodDeletionCost"),
    alpha("PodLevelResourceManagers"),
    beta("PodLevelResources"),
    locked("PodLifecycleSleepAction"),
    locked("PodLifecycleSleepActionAllowZero"),
    alpha("PodLogsQuerySplitStreams"),
    locked("PodObservedGenerationTracking"),
    beta("PodReadyToStartContainersCondition"),
    locked("PodSchedulingReadiness"),
    beta("PodTopologyLabelsAdmission"),
    alpha("PodsAPI"),
    beta("PortForwardWebsockets"),
    locked("PreferSameTrafficDistribution"),
    beta("PreventStaticPodAPIReferences"),
    locked("ProcMountType"),
    alpha("QOSReserved"),
    locked("RecoverVolumeExpansionFailure"),
    locked("RecursiveReadOnlyMounts"),
    alpha("ReduceDefaultCrashLoopBackOffDecay"),
    locked("RelaxedDNSSearchValidation"),
    locked("RelaxedEnvironmentVariableValidation"),
    beta("RelaxedServiceNameValidation"),
    beta("ReloadKubeletClientCAFile"),
    beta("ReloadKubeletServerCertificateFile"),
    beta("RemoteRequestHeaderUID"),
    locked("ResilientWatchCacheInitialization"),
    beta("ResourceHealthStatus"),
    beta("ResourceHealthStatusMessage"),
    beta("RestartAllContainersOnContainerExits"),
    locked("RetryGenerateName"),
    beta("RotateKubeletServerCertificate"),
    alpha("RuntimeClassInImageCriApi"),
    locked("SELinuxChangePolicy"),
    beta_off("SELinuxMount"),
    locked("SELinuxMountReadWriteOncePod"),
    beta_off("SchedulerAsyncAPICalls"),
    beta("SchedulerAsyncPreemption"),
    beta("SchedulerPopFromBackoffQ"),
    locked("SchedulerQueueingHints"),
    deprecated_locked("SeparateCacheWatchRPC", false),
    locked("SeparateTaintEvictionController"),
    beta("ServiceAccountNodeAudienceRestriction"),
    locked("ServiceAccountTokenJTI"),
    locked("ServiceAccountTokenNodeBinding"),
    locked("ServiceAccountTokenNodeBindingValidation"),
    locked("ServiceAccountTokenPodNodeInfo"),
    deprecated("ServiceCIDRStatusFieldWiping", true),
    alpha("ShardedListAndWatch"),
    locked("SidecarContainers"),
    beta("SizeBasedListCostEstimate"),
    beta("StaleControllerConsistencyDaemonSet"),
    beta("StaleControllerConsistencyJob"),
    beta("StaleControllerConsistencyReplicaSet"),
    beta("StaleControllerConsistencyStatefulSet"),
    beta("StatefulSetSemanticRevisionComparison"),
    alpha("StorageCapacityScoring"),
    deprecated("StorageNamespaceIndex", true),
    alpha("StorageVersionAPI"),
    beta("StorageVersionHash"),
    beta_off("StorageVersionMigrator"),
    locked("StreamingCollectionEncodingToJSON"),
    locked("StreamingCollectionEncodingToProtobuf"),
    beta("StrictIPCIDRValidation"),
    locked("StructuredAuthenticationConfiguration"),
    beta("StructuredAuthenticationConfigurationEgressSelector"),
    beta("StructuredAuthenticationConfigurationJWKSMetrics"),
    locked("SupplementalGroupsPolicy"),
    locked("SystemdWatchdog"),
    alpha("TaintTolerationComparisonOperators"),
    beta("TokenRequestServiceAccountUIDValidation"),
    alpha("TopologyAwareWorkloadScheduling"),
    alpha("TopologyManagerPolicyAlphaOptions"),
    beta("TopologyManagerPolicyBetaOptions"),
    locked("TopologyManagerPolicyOptions"),
    beta("TranslateStreamCloseWebsocketRequests"),
    beta("UnauthenticatedHTTP2DOSMitigation"),
    beta("UnknownVersionInteroperabilityProxy"),
    beta("UnlockWhileProcessingFIFO"),
    alpha("UserNamespacesHostNetworkSupport"),
    locked("UserNamespacesSupport"),
    locked("VolumeAttributesClass"),
    alpha("VolumeLimitScaling"),
    beta("WatchCacheInitializationPostStartHook"),
    beta("WatchList"),
    beta("WatchListClient"),
    locked("WinDSR"),
    locked("WinOverlay"),
    alpha("WindowsCPUAndMemoryAffinity"),
    beta("WindowsGracefulNodeShutdown"),
    deprecated("WindowsHostNetwork", false),
    alpha("WorkloadAwarePreemption"),
    alpha("WorkloadWithJob"),
];

/// Returns a gate by its name.
pub(super) fn find(name: &str) -> Option<&'static Spec> {
    let index = GATES.binary_search_by(|gate| gate.name.cmp(name)).ok()?;
    GATES.get(index)
}
