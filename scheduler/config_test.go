package scheduler

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestConfigDefaults(t *testing.T) {
	p, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if p.InitialBackoff != time.Second || p.MaxBackoff != 10*time.Second || len(p.Profiles) != 1 || p.Profiles[0].SchedulerName != "default-scheduler" {
		t.Errorf("defaults are %+v", p)
	}
}

func TestConfigRefusesWhatHasNoEffect(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1beta3\n", "want kubescheduler.config.k8s.io/v1"},
		{head + "profils: []\n", "profils"},
		{head + "extenders: [{urlPrefix: http://x}]\n", "extenders"},
		{head + "parallelism: 4\n", "parallelism"},
		{head + "percentageOfNodesToScore: 30\n", "always judges all nodes"},
		{head + "podInitialBackoffSeconds: 20\n", "back-off"},
		{head + "profiles: [{schedulerName: a}, {schedulerName: a}]\n", "taken by another profile"},
		{head + "profiles: [{plugins: {filtr: {}}}]\n", "filtr"},
	} {
		_, err := ParseConfig([]byte(c.body))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error is %v; want one with %q", c.body, err, c.want)
		}
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

func TestPluginsByExtensionPoint(t *testing.T) {
	p, err := build(t, `profiles: [{plugins: {
  multiPoint: {disabled: [{name: ImageLocality}]},
  filter: {disabled: [{name: NodePorts}]},
  score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit, weight: 7}]}}}]`)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(p.Filter); slices.Contains(got, "NodePorts") || !slices.Contains(got, "NodeResourcesFit") {
		t.Errorf("filters are %v", got)
	}
	if len(p.Score) != 1 || p.Score[0].Name() != "NodeResourcesFit" || p.Score[0].Weight != 7 {
		t.Errorf("scores are %v", p.Score)
	}
}

func TestDefaultWeights(t *testing.T) {
	p, err := build(t, "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2, "NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "SchedulingPolicy": 1}
	if len(p.Score) != len(want) {
		t.Errorf("%d score plugins, want %d", len(p.Score), len(want))
	}
	for _, s := range p.Score {
		if s.Weight != want[s.Name()] {
			t.Errorf("%s has weight %d, want %d", s.Name(), s.Weight, want[s.Name()])
		}
	}
}

func TestBadProfilesAreRefused(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"profiles: [{plugins: {filter: {enabled: [{name: Nope}]}}}]", `there is no plugin "Nope"`},
		{"profiles: [{plugins: {filter: {enabled: [{name: ImageLocality}]}}}]", "no such extension point"},
		{"profiles: [{plugins: {bind: {disabled: [{name: '*'}]}}}]", "no bind plugin"},
		{"profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}}}]", "queueSort"},
		{"profiles: [{pluginConfig: [{name: Nope}]}]", `there is no plugin "Nope"`},
		{"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignored: [x]}}]}]", "ignored"},
		{"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Magic}}}]}]", "Magic"},
		{"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {kind: NodeAffinityArgs}}]}]", "NodeAffinityArgs"},
		{"profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]", "101"},
	} {
		if _, err := build(t, c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v; want one with %q", c.body, err, c.want)
		}
	}
}
