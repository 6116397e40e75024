package scheduler

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestConfigDefaults(t *testing.T) {
	p, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if p.InitialBackoff != time.Second || p.MaxBackoff != 10*time.Second || len(p.Profiles) != 1 || p.Profiles[0].SchedulerName != "default-scheduler" || len(p.Notes) > 0 {
		t.Errorf("defaults are %+v", p)
	}
}

func TestConfigFields(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", ""},
		{"another version", "\nkind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1beta3\n", "want kubescheduler.config.k8s.io/v1"},
		{"an unknown field", "profils: []", `unknown field "profils"`},
		{"an unknown point", "profiles: [{plugins: {filtr: {}}}]", `unknown field "filtr"`},
		{"alpha points", "profiles: [{plugins: {placementScore: {}}}]", `unknown field "placementScore"`},
		{"parallelism", "parallelism: 4", ""},
		{"no parallelism", "parallelism: 0", "parallelism: Invalid value: 0: should be an integer value greater than zero"},
		{"a percentage", "percentageOfNodesToScore: 30", ""},
		{"more than all", "percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"},
		{"less than none", "profiles: [{percentageOfNodesToScore: -1}]", "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]"},
		{"no back-off", "podInitialBackoffSeconds: 0", "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"},
		{"falling back-off", "podInitialBackoffSeconds: 20", "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds"},
		{"two of a name", "profiles: [{schedulerName: a}, {schedulerName: a}]", `profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"`},
		{"two, one without a name", "profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value"},
		{"arguments twice", "profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]", `profiles[0].pluginConfig[1]: Duplicate value: "NodeAffinity"`},
		{"a plugin of old", "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]", `profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid in version "v1"`},
		{"its arguments", "profiles: [{pluginConfig: [{name: CinderLimits}]}]", `profiles[0].pluginConfig[0]: Invalid value: "CinderLimits"`},
		{"two orders", "profiles: [{plugins: {queueSort: {enabled: [{name: A}, {name: B}]}}}]", "only one queue sort plugin can be enabled"},
		{"a negative weight", "profiles: [{plugins: {score: {enabled: [{name: ImageLocality, weight: -1}]}}}]", "profiles[0].plugins.score.enabled[0].weight: Invalid value: -1"},
		{"profiling", "enableProfiling: true", "enableProfiling: Forbidden"},
		{"contention", "enableContentionProfiling: true", "enableContentionProfiling: Forbidden"},
		{"late caches", "delayCacheUntilActive: true", "delayCacheUntilActive: Forbidden"},
		{"election", "leaderElection: {leaderElect: true, leaseDuration: 15s, resourceName: x}", ""},
		{"another lock", "leaderElection: {resourceLock: endpoints}", `leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"`},
		{"a short lease", "leaderElection: {leaseDuration: 5s}", "leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`"},
		{"a short lease that nobody wants", "leaderElection: {leaderElect: false, leaseDuration: 5s}", ""},
		{"a negative period", "leaderElection: {retryPeriod: -1s}", "leaderElection.retryPeriod: Invalid value: \"-1s\": must be greater than zero"},
		{"connection", "clientConnection: {kubeconfig: /x, qps: 100, burst: 200, contentType: application/vnd.kubernetes.protobuf}", ""},
		{"negative burst", "clientConnection: {burst: -1}", "clientConnection.burst: Invalid value: -1: must be non-negative"},
		{"another encoding", "clientConnection: {contentType: application/json}", "clientConnection.contentType: Unsupported value"},
		{"an extender", "extenders: [{urlPrefix: 'http://x/', filterVerb: filter, httpTimeout: 2s, managedResources: [{name: example.com/x, ignoredByScheduler: true}]}]", ""},
		{"no address", "extenders: [{filterVerb: filter}]", "extenders[0].urlPrefix: Invalid value"},
		{"ratings without weight", "extenders: [{urlPrefix: 'http://x', prioritizeVerb: p}]", "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it"},
		{"two binders", "extenders: [{urlPrefix: 'http://x', bindVerb: b}, {urlPrefix: 'http://y', bindVerb: b}]", `extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind`},
		{"one resource twice", "extenders: [{urlPrefix: 'http://x', managedResources: [{name: example.com/x}]}, {urlPrefix: 'http://y', managedResources: [{name: example.com/x}]}]",
			"duplicate extender managed resource name"},
		{"a resource of Kubernetes", "extenders: [{urlPrefix: 'http://x', managedResources: [{name: cpu}]}]", `extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name`},
		{"no name at all", "extenders: [{urlPrefix: 'http://x', managedResources: [{name: 'a b/c d'}]}]", "extenders[0].managedResources[0].name: Invalid value"},
		{"HTTPS with anybody", "extenders: [{urlPrefix: 'https://x', enableHTTPS: true}]", "extenders[0].tlsConfig: Required value"},
		{"HTTPS with anybody, said so", "extenders: [{urlPrefix: 'https://x', enableHTTPS: true, tlsConfig: {insecure: true}}]", ""},
		{"a negative time", "extenders: [{urlPrefix: 'http://x', httpTimeout: -1s}]", "extenders[0].httpTimeout: Invalid value"},
	} {
		body := c.body
		if !strings.HasPrefix(body, "\n") {
			body = head + body + "\n"
		}
		_, err := ParseConfig([]byte(body))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error is %v; want one with %q", c.name, err, c.want)
		}
	}
}

func TestWhatDoesNothingIsNoted(t *testing.T) {
	p, err := ParseConfig([]byte(head + "parallelism: 4\nprofiles: [{percentageOfNodesToScore: 30}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Notes, "\n"); !strings.Contains(got, "parallelism has no effect") || !strings.Contains(got, "percentageOfNodesToScore has no effect") {
		t.Errorf("notes are %q", p.Notes)
	}
}

func TestEmbeddedSchedulerRefusesWhatItsServerSettles(t *testing.T) {
	p, err := ParseConfig([]byte(head + "leaderElection: {leaderElect: true}\nclientConnection: {kubeconfig: /x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Embedded(); err == nil || !strings.Contains(err.Error(), "leaderElection: Forbidden") || !strings.Contains(err.Error(), "clientConnection: Forbidden") {
		t.Errorf("error is %v", err)
	}
}

func build(t *testing.T, body string) (*framework.Profile, error) {
	t.Helper()
	p, err := ParseConfig([]byte(head + body))
	if err != nil {
		t.Fatal(err)
	}
	return buildProfile(p.Profiles[0], plugins.Registry(), testHandle(framework.NewNodes(), nil), rand.New(rand.NewPCG(1, 1)))
}

func names[P framework.Plugin](list []P) (out []string) {
	for _, p := range list {
		out = append(out, p.Name())
	}
	return out
}

func weights(p *framework.Profile) map[string]int64 {
	out := map[string]int64{}
	for _, s := range p.Score {
		out[s.Name()] = s.Weight
	}
	return out
}

// TestPluginsByExtensionPoint follows the merging of multiPoint and extension points that the API documents.
func TestPluginsByExtensionPoint(t *testing.T) {
	filters := []string{"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits",
		"VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "NodeDeclaredFeatures"}
	isDefault := func(name string) bool {
		return slices.ContainsFunc(defaults(), func(r PluginRef) bool { return r.Name == name })
	}
	for _, c := range []struct {
		name, body string
		filters    []string
		scores     map[string]int64 // nil: not looked at
	}{
		{"nothing said", "", filters, map[string]int64{"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2, "NodeResourcesFit": 1,
			"NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "SchedulingPolicy": 1}},
		{"one off everywhere", "multiPoint: {disabled: [{name: NodePorts}]}", slices.DeleteFunc(slices.Clone(filters), func(n string) bool { return n == "NodePorts" }), nil},
		{"one off at a point", "filter: {disabled: [{name: NodePorts}]}", slices.DeleteFunc(slices.Clone(filters), func(n string) bool { return n == "NodePorts" }), nil},
		{"all off at a point, one on", "filter: {disabled: [{name: '*'}], enabled: [{name: NodePorts}]}", []string{"NodePorts"}, nil},
		{"one named again comes first", "filter: {enabled: [{name: VolumeZone}, {name: NodePorts}]}",
			append([]string{"VolumeZone", "NodePorts"}, slices.DeleteFunc(slices.Clone(filters), func(n string) bool { return n == "NodePorts" || n == "VolumeZone" })...), nil},
		{"a new weight everywhere", "multiPoint: {enabled: [{name: ImageLocality, weight: 9}]}", filters, map[string]int64{"TaintToleration": 3, "NodeAffinity": 2,
			"PodTopologySpread": 2, "InterPodAffinity": 2, "NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 9, "SchedulingPolicy": 1}},
		{"only one score", "score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 7}]}", filters, map[string]int64{"NodeResourcesFit": 7}},
		{"no weight is one", "score: {disabled: [{name: '*'}], enabled: [{name: TaintToleration}]}", filters, map[string]int64{"TaintToleration": 1}},
		{"all off, some on", "multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: NodeResourcesFit, weight: 2}, {name: DefaultBinder}]}",
			[]string{"NodeResourcesFit"}, map[string]int64{"NodeResourcesFit": 2}},
	} {
		p, err := build(t, "profiles: [{plugins: {"+c.body+"}}]")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := slices.DeleteFunc(names(p.Filter), func(n string) bool { return !slices.Contains(filters, n) && isDefault(n) })
		if diff := cmp.Diff(c.filters, got); diff != "" {
			t.Errorf("%s: filters differ (-want +got): %s", c.name, diff)
		}
		if isDefault("DynamicResources") && c.scores["TaintToleration"] == 3 {
			c.scores["DynamicResources"] = 2
		}
		if diff := cmp.Diff(c.scores, weights(p)); c.scores != nil && diff != "" {
			t.Errorf("%s: scores differ (-want +got): %s", c.name, diff)
		}
	}
}

func TestBadProfilesAreRefused(t *testing.T) {
	args := func(plugin, args string) string {
		return "profiles: [{pluginConfig: [{name: " + plugin + ", args: {" + args + "}}]}]"
	}
	on := func(point, what string) string { return "profiles: [{plugins: {" + point + ": {" + what + "}}}]" }
	for _, c := range []struct{ body, want string }{
		{on("filter", "enabled: [{name: Nope}]"), `plugin "Nope" does not exist`},
		{on("multiPoint", "enabled: [{name: Nope}]"), `plugin "Nope" does not exist`},
		{on("filter", "enabled: [{name: ImageLocality}]"), `plugin "ImageLocality" does not extend FilterPlugin plugin`},
		{on("filter", "enabled: [{name: NodePorts}, {name: NodePorts}]"), `plugin "NodePorts" already registered as "FilterPlugin"`},
		{on("multiPoint", "enabled: [{name: NodePorts}, {name: NodePorts}]"), `plugin "NodePorts" already registered as "FilterPlugin"`},
		{on("bind", "disabled: [{name: '*'}]"), `at least one bind plugin is needed for profile with scheduler name "default-scheduler"`},
		{on("queueSort", "disabled: [{name: '*'}]"), `only one queue sort plugin required for profile with scheduler name "default-scheduler", but got 0`},
		{"profiles: [{pluginConfig: [{name: Nope}]}]", `plugin "Nope" does not exist`},
		{args("NodeResourcesFit", "ignored: [x]"), `unknown field "ignored"`},
		{args("NodeResourcesFit", "kind: NodeAffinityArgs"), "NodeAffinityArgs"},
		{args("NodeResourcesFit", "scoringStrategy: {type: Magic}"), `initializing plugin "NodeResourcesFit": arguments of plugin NodeResourcesFit: scoringStrategy.type: Unsupported value: "Magic": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"`},
		{args("NodeResourcesFit", "scoringStrategy: {}"), `scoringStrategy.type: Unsupported value: ""`},
		{args("NodeResourcesFit", "scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 101}]}"), "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]"},
		{args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio}"), "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio"},
		{args("NodeResourcesFit", "scoringStrategy: {type: MostAllocated, requestedToCapacityRatio: {shape: []}}"), "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio"},
		{args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: []}}"), "shape: Required value: at least one point must be specified"},
		{args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 5, score: 1}, {utilization: 5, score: 11}]}}"),
			"shape[1].utilization: Invalid value: 5: values must be sorted in increasing order"},
		{args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 101, score: 1}]}}"), "shape[0].utilization: Invalid value: 101: not in valid range [0, 100]"},
		{args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 1, score: 11}]}}"), "shape[0].score: Invalid value: 11: not in valid range [0, 10]"},
		{args("NodeResourcesFit", "ignoredResources: ['a b']"), "ignoredResources[0]: Invalid value"},
		{args("NodeResourcesFit", "ignoredResourceGroups: ['a/b']"), "resource group name can't contain '/'"},
		{args("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]"), "resources[0].weight: Invalid value: 2: must be 1"},
		{args("NodeResourcesBalancedAllocation", "resources: [{name: cpu}, {name: cpu}]"), `resources[1].name: Duplicate value: "cpu"`},
		{args("InterPodAffinity", "hardPodAffinityWeight: 101"), "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"},
		{args("DefaultPreemption", "minCandidateNodesPercentage: 101"), "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"},
		{args("DefaultPreemption", "minCandidateNodesAbsolute: -1"), "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)"},
		{args("DefaultPreemption", "minCandidateNodesAbsolute: 0, minCandidateNodesPercentage: 0"), "cannot be zero at the same time as minCandidateNodesAbsolute"},
		{args("NodeAffinity", "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}"), "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"},
		{args("PodTopologySpread", "defaultingType: Random"), `defaultingType: Unsupported value: "Random": supported values: "System", "List"`},
		{args("PodTopologySpread", "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]"), `defaultingType: Invalid value: "System": when .defaultConstraints are not empty`},
		{args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]"), "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)"},
		{args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]"), "defaultConstraints[0].topologyKey: Required value: can not be empty"},
		{args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone}]"), "defaultConstraints[0].whenUnsatisfiable: Required value"},
		{args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Perhaps}]"), "defaultConstraints[0].whenUnsatisfiable: Unsupported value"},
		{args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]"), "defaultConstraints[0].labelSelector: Forbidden"},
		{args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 2, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}]"),
			`defaultConstraints[1]: Duplicate value: "{z, ScheduleAnyway}"`},
		{args("VolumeBinding", "bindTimeoutSeconds: -1"), "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"},
		{args("VolumeBinding", "shape: [{utilization: 0, score: 10}]"), "unexpected field `shape`"},
		{args("NodePorts", "anything: 1"), `unknown field "anything"`},
	} {
		if _, err := build(t, c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v; want one with %q", c.body, err, c.want)
		}
	}
}

func TestGoodArgumentsAreAccepted(t *testing.T) {
	if _, err := build(t, `profiles: [{pluginConfig: [
  {name: NodeResourcesFit, args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesFitArgs, ignoredResources: [example.com/x], ignoredResourceGroups: [example.org],
    scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 100}, {name: example.com/gpu}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}}}},
  {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu}, {name: example.com/gpu, weight: 1}]}},
  {name: InterPodAffinity, args: {hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true}},
  {name: DefaultPreemption, args: {minCandidateNodesAbsolute: 0}},
  {name: NodeAffinity, args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}},
  {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}},
  {name: VolumeBinding, args: {bindTimeoutSeconds: 0}},
  {name: DefaultBinder, args: {kind: DefaultBinderArgs, apiVersion: kubescheduler.config.k8s.io/v1}},
  {name: ImageLocality, args: {}}]}]`); err != nil {
		t.Error(err)
	}
}

// FuzzConfig: whatever a configuration says, it is taken or refused, and so are the profiles that come of it.
func FuzzConfig(f *testing.F) {
	for _, body := range []string{"", "parallelism: 1", "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}}}]", "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{}]}}]}]",
		"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 1, score: 2}]}}}}]}]",
		"extenders: [{urlPrefix: 'http://x', httpTimeout: 1s, tlsConfig: {caData: eA==}}]", "leaderElection: {leaseDuration: 1s}"} {
		f.Add(body)
	}
	f.Fuzz(func(_ *testing.T, body string) {
		p, err := ParseConfig([]byte(head + body))
		if err != nil {
			return
		}
		for _, one := range p.Profiles {
			_, _ = buildProfile(one, plugins.Registry(), testHandle(framework.NewNodes(), nil), rand.New(rand.NewPCG(1, 1)))
		}
	})
}
