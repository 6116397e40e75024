package scheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "k8s.io/component-base/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/scheduler/extender"
	"github.com/yare-project/yare/scheduler/plugins"
	"github.com/yare-project/yare/scheduler/policy"
)

// Profiles is what a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1 says, checked and with its defaults.
type Profiles struct {
	InitialBackoff, MaxBackoff time.Duration
	Profiles                   []ProfileConfig
	Extenders                  []extender.Config
	LeaderElection             *LeaderElection   // nil if not given
	ClientConnection           *ClientConnection // nil if not given
	Notes                      []string          // what was accepted although it does nothing, for the log
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

// LeaderElection and ClientConnection are for who runs the scheduler on its own (scheduler/command); in yare server they are refused.
type (
	LeaderElection   = configv1alpha1.LeaderElectionConfiguration
	ClientConnection = configv1alpha1.ClientConnectionConfiguration
)

// file is the document. Fields that Yare reads only to refuse them are raw.
type file struct {
	metav1.TypeMeta          `json:",inline"`
	Parallelism              *int32            `json:"parallelism,omitempty"`
	PodInitialBackoffSeconds *int64            `json:"podInitialBackoffSeconds,omitempty"`
	PodMaxBackoffSeconds     *int64            `json:"podMaxBackoffSeconds,omitempty"`
	PercentageOfNodesToScore *int32            `json:"percentageOfNodesToScore,omitempty"`
	Profiles                 []ProfileConfig   `json:"profiles,omitempty"`
	Extenders                []extender.Config `json:"extenders,omitempty"`
	LeaderElection           *LeaderElection   `json:"leaderElection,omitempty"`
	ClientConnection         *ClientConnection `json:"clientConnection,omitempty"`

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

// ParseConfig is LoadConfig for a document at hand. It refuses what it does not know, what Kubernetes refuses, in its words, and what would have no effect;
// only parallelism and percentageOfNodesToScore are borne without one, as Notes says: they are there to make another scheduler faster.
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
	out := Profiles{InitialBackoff: seconds(f.PodInitialBackoffSeconds, 1), MaxBackoff: seconds(f.PodMaxBackoffSeconds, 10), Profiles: f.Profiles,
		Extenders: f.Extenders, LeaderElection: f.LeaderElection, ClientConnection: f.ClientConnection, Notes: f.notes()}
	if len(out.Profiles) == 0 {
		out.Profiles = []ProfileConfig{{}}
	}
	if len(out.Profiles) == 1 && out.Profiles[0].SchedulerName == "" { // of several, each needs a name of its own
		out.Profiles[0].SchedulerName = corev1.DefaultSchedulerName
	}
	if errs := f.check(out.Profiles); len(errs) > 0 {
		return Profiles{}, errs.ToAggregate()
	}
	return out, nil
}

func seconds(v *int64, def int64) time.Duration {
	if v != nil {
		def = *v
	}
	return time.Duration(def) * time.Second
}

// notes tells what is accepted and does nothing.
func (f *file) notes() (notes []string) {
	if f.Parallelism != nil {
		notes = append(notes, "parallelism has no effect: one goroutine decides, over what is kept of earlier decisions")
	}
	sampled := f.PercentageOfNodesToScore
	for k := range f.Profiles {
		if p := f.Profiles[k].PercentageOfNodesToScore; p != nil {
			sampled = p
		}
	}
	if sampled != nil {
		notes = append(notes, "percentageOfNodesToScore has no effect: all nodes are judged and rated")
	}
	return notes
}

// Embedded is for a scheduler that does not run on its own: it refuses what whoever runs it has settled.
func (p *Profiles) Embedded() error {
	var errs field.ErrorList
	if p.LeaderElection != nil {
		errs = append(errs, field.Forbidden(field.NewPath("leaderElection"), "the server elects the leader of all its loops; leave it out"))
	}
	if p.ClientConnection != nil {
		errs = append(errs, field.Forbidden(field.NewPath("clientConnection"), "the scheduler reaches the API in process; leave it out"))
	}
	return errs.ToAggregate()
}

// defaults are the plugins of a profile that says nothing.
func defaults() []PluginRef {
	var out []PluginRef
	for _, d := range plugins.Default() {
		out = append(out, PluginRef{d.Name, d.Weight})
	}
	return append(out, PluginRef{policy.Name, 1})
}
