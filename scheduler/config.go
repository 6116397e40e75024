package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/scheduler/plugins"
	"github.com/yare-project/yare/scheduler/policy"
)

// Profiles is what a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1 says, checked and with its defaults.
type Profiles struct {
	InitialBackoff, MaxBackoff time.Duration
	Profiles                   []ProfileConfig
}

// ProfileConfig configures the scheduling of pods with one spec.schedulerName.
type ProfileConfig struct {
	SchedulerName            string         `json:"schedulerName,omitempty"`
	PercentageOfNodesToScore *int32         `json:"percentageOfNodesToScore,omitempty"`
	Plugins                  *PluginSets    `json:"plugins,omitempty"`
	PluginConfig             []PluginConfig `json:"pluginConfig,omitempty"`
}

// PluginSets switches plugins on and off by extension point; MultiPoint does so for all points that a plugin has.
type PluginSets struct {
	PreEnqueue PluginSet `json:"preEnqueue,omitempty"`
	QueueSort  PluginSet `json:"queueSort,omitempty"`
	PreFilter  PluginSet `json:"preFilter,omitempty"`
	Filter     PluginSet `json:"filter,omitempty"`
	PostFilter PluginSet `json:"postFilter,omitempty"`
	PreScore   PluginSet `json:"preScore,omitempty"`
	Score      PluginSet `json:"score,omitempty"`
	Reserve    PluginSet `json:"reserve,omitempty"`
	Permit     PluginSet `json:"permit,omitempty"`
	PreBind    PluginSet `json:"preBind,omitempty"`
	Bind       PluginSet `json:"bind,omitempty"`
	PostBind   PluginSet `json:"postBind,omitempty"`
	MultiPoint PluginSet `json:"multiPoint,omitempty"`
}

// PluginSet is a change of one extension point: what is disabled (or "*"), and what is enabled, in order.
type PluginSet struct {
	Enabled  []PluginRef `json:"enabled,omitempty"`
	Disabled []PluginRef `json:"disabled,omitempty"`
}

// PluginRef names a plugin; Weight matters for scores, zero means 1.
type PluginRef struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight,omitempty"`
}

// PluginConfig gives a plugin its arguments.
type PluginConfig struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// file is the document. Fields that Yare reads only to refuse them are raw.
type file struct {
	metav1.TypeMeta          `json:",inline"`
	PodInitialBackoffSeconds *int64          `json:"podInitialBackoffSeconds,omitempty"`
	PodMaxBackoffSeconds     *int64          `json:"podMaxBackoffSeconds,omitempty"`
	PercentageOfNodesToScore *int32          `json:"percentageOfNodesToScore,omitempty"`
	Profiles                 []ProfileConfig `json:"profiles,omitempty"`

	Parallelism               json.RawMessage `json:"parallelism,omitempty"`
	LeaderElection            json.RawMessage `json:"leaderElection,omitempty"`
	ClientConnection          json.RawMessage `json:"clientConnection,omitempty"`
	Extenders                 json.RawMessage `json:"extenders,omitempty"`
	EnableProfiling           json.RawMessage `json:"enableProfiling,omitempty"`
	EnableContentionProfiling json.RawMessage `json:"enableContentionProfiling,omitempty"`
	DelayCacheUntilActive     json.RawMessage `json:"delayCacheUntilActive,omitempty"`
}

const configVersion = "kubescheduler.config.k8s.io/v1"

// LoadConfig reads a KubeSchedulerConfiguration in YAML or JSON. An empty path means the defaults.
func LoadConfig(path string) (Profiles, error) {
	if path == "" {
		return ParseConfig(nil)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return Profiles{}, fmt.Errorf("scheduler configuration: %w", err)
	}
	p, err := ParseConfig(body)
	if err != nil {
		return Profiles{}, fmt.Errorf("scheduler configuration %s: %w", path, err)
	}
	return p, nil
}

// ParseConfig is LoadConfig for a document at hand. It refuses what it does not know and what would have no effect.
func ParseConfig(body []byte) (Profiles, error) {
	f := file{TypeMeta: metav1.TypeMeta{APIVersion: configVersion, Kind: "KubeSchedulerConfiguration"}}
	if len(body) > 0 {
		f.TypeMeta = metav1.TypeMeta{}
		if err := yaml.UnmarshalStrict(body, &f); err != nil {
			return Profiles{}, err
		}
	}
	if f.APIVersion != configVersion || f.Kind != "KubeSchedulerConfiguration" {
		return Profiles{}, fmt.Errorf("is %s %s; want %s KubeSchedulerConfiguration", f.APIVersion, f.Kind, configVersion)
	}
	out := Profiles{InitialBackoff: seconds(f.PodInitialBackoffSeconds, 1), MaxBackoff: seconds(f.PodMaxBackoffSeconds, 10), Profiles: f.Profiles}
	if len(out.Profiles) == 0 {
		out.Profiles = []ProfileConfig{{}}
	}
	errs := []error{f.refusals(), all(f.PercentageOfNodesToScore, "percentageOfNodesToScore")}
	if out.InitialBackoff <= 0 || out.MaxBackoff < out.InitialBackoff {
		errs = append(errs, fmt.Errorf("back-off from %v to %v: want a positive podInitialBackoffSeconds, not above podMaxBackoffSeconds", out.InitialBackoff, out.MaxBackoff))
	}
	seen := map[string]bool{}
	for i := range out.Profiles {
		p := &out.Profiles[i]
		if p.SchedulerName == "" {
			p.SchedulerName = corev1.DefaultSchedulerName
		}
		if seen[p.SchedulerName] {
			errs = append(errs, fmt.Errorf("profiles[%d]: schedulerName %q is taken by another profile", i, p.SchedulerName))
		}
		seen[p.SchedulerName] = true
		errs = append(errs, all(p.PercentageOfNodesToScore, fmt.Sprintf("profiles[%d].percentageOfNodesToScore", i)))
	}
	return out, errors.Join(errs...)
}

func seconds(v *int64, def int64) time.Duration {
	if v != nil {
		def = *v
	}
	return time.Duration(def) * time.Second
}

func all(percentage *int32, field string) error {
	if percentage != nil && *percentage != 100 {
		return fmt.Errorf("%s is %d: the scheduler always judges all nodes; leave it out or set 100", field, *percentage)
	}
	return nil
}

func (f *file) refusals() error {
	var errs []error
	for _, r := range []struct {
		set   bool
		field string
		why   string
	}{
		{f.Parallelism != nil, "parallelism", "one goroutine decides"},
		{f.LeaderElection != nil, "leaderElection", "the server elects the leader of all its loops"},
		{f.ClientConnection != nil, "clientConnection", "the scheduler reaches the API in process"},
		{f.Extenders != nil, "extenders", "webhook extenders are not supported; write a plugin"},
		{f.EnableProfiling != nil, "enableProfiling", "the server serves profiles for the whole process"},
		{f.EnableContentionProfiling != nil, "enableContentionProfiling", "the server serves profiles for the whole process"},
		{f.DelayCacheUntilActive != nil, "delayCacheUntilActive", "caches are shared with the other loops"},
	} {
		if r.set {
			errs = append(errs, fmt.Errorf("%s has no meaning here: %s", r.field, r.why))
		}
	}
	return errors.Join(errs...)
}

// defaults are the plugins of a profile that says nothing.
func defaults() []PluginRef {
	var out []PluginRef
	for _, d := range plugins.Default() {
		out = append(out, PluginRef{d.Name, d.Weight})
	}
	return append(out, PluginRef{policy.Name, 1})
}
