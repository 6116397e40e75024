package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/yare-project/yare/scheduler/dra"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/policy"
)

// builder makes one profile.
type builder struct {
	config    ProfileConfig
	factories map[string]framework.Factory
	handle    framework.Handle
	made      map[string]framework.Plugin
	errs      []error
}

func buildProfile(c ProfileConfig, factories map[string]framework.Factory, handle framework.Handle, rng *rand.Rand, more ...func(framework.Set) framework.Set) (*framework.Profile, error) {
	handle.Scheduler = c.SchedulerName
	if factories[policy.Name] == nil { // a profile on its own knows no policies
		factories = maps.Clone(factories)
		factories[policy.Name] = policy.NewBook(handle.Nodes).Factory
	}
	if factories[dra.Name] == nil { // nor devices
		factories = maps.Clone(factories)
		factories[dra.Name] = dra.NewBook(dra.Config{}).Factory
	}
	b := &builder{config: c, factories: factories, handle: handle, made: map[string]framework.Plugin{}}
	set := b.set()
	for _, pc := range c.PluginConfig {
		if _, ok := factories[pc.Name]; !ok {
			b.errs = append(b.errs, fmt.Errorf("pluginConfig: plugin %q does not exist", pc.Name))
		}
	}
	if err := errors.Join(b.errs...); err != nil {
		return nil, fmt.Errorf("profile %q: %w", c.SchedulerName, err)
	}
	for _, extend := range more {
		set = extend(set)
	}
	return framework.NewProfile(c.SchedulerName, set, handle.Nodes, rng)
}

func (b *builder) set() framework.Set {
	sets := b.config.Plugins
	if sets == nil {
		sets = &PluginSets{}
	}
	multi := merge(defaults(), sets.MultiPoint)
	var s framework.Set
	s.PreEnqueue = bare(at[framework.PreEnqueuePlugin](b, "preEnqueue", multi, sets.PreEnqueue))
	s.PreFilter = bare(at[framework.PreFilterPlugin](b, "preFilter", multi, sets.PreFilter))
	s.Filter = bare(at[framework.FilterPlugin](b, "filter", multi, sets.Filter))
	s.PostFilter = bare(at[framework.PostFilterPlugin](b, "postFilter", multi, sets.PostFilter))
	s.PreScore = bare(at[framework.PreScorePlugin](b, "preScore", multi, sets.PreScore))
	for _, w := range at[framework.ScorePlugin](b, "score", multi, sets.Score) {
		s.Score = append(s.Score, framework.WeightedScore{ScorePlugin: w.plugin, Weight: int64(max(w.weight, 1))})
	}
	s.Reserve = bare(at[framework.ReservePlugin](b, "reserve", multi, sets.Reserve))
	s.Permit = bare(at[framework.PermitPlugin](b, "permit", multi, sets.Permit))
	s.PreBind = bare(at[framework.PreBindPlugin](b, "preBind", multi, sets.PreBind))
	s.Bind = bare(at[framework.BindPlugin](b, "bind", multi, sets.Bind))
	s.PostBind = bare(at[framework.PostBindPlugin](b, "postBind", multi, sets.PostBind))
	sorts := bare(at[framework.QueueSortPlugin](b, "queueSort", multi, sets.QueueSort))
	if len(sorts) == 1 {
		s.QueueSort = sorts[0]
	} else {
		b.errs = append(b.errs, fmt.Errorf("only one queue sort plugin required for profile with scheduler name %q, but got %d", b.config.SchedulerName, len(sorts)))
	}
	if len(s.Bind) == 0 {
		b.errs = append(b.errs, fmt.Errorf("at least one bind plugin is needed for profile with scheduler name %q", b.config.SchedulerName))
	}
	for _, r := range multi {
		if p := b.made[r.Name]; p != nil && !extends(p) {
			b.errs = append(b.errs, fmt.Errorf("plugin %s has none of the extension points", r.Name))
		}
	}
	return s
}

// extends tells whether a plugin has any extension point.
func extends(p framework.Plugin) bool {
	switch p.(type) {
	case framework.PreEnqueuePlugin, framework.QueueSortPlugin, framework.PreFilterPlugin, framework.FilterPlugin, framework.PostFilterPlugin, framework.PreScorePlugin,
		framework.ScorePlugin, framework.ReservePlugin, framework.PermitPlugin, framework.PreBindPlugin, framework.BindPlugin, framework.PostBindPlugin:
		return true
	}
	return false
}

// merge applies a change to the default plugins: a default that is named again keeps its place.
func merge(defaults []PluginRef, change PluginSet) []PluginRef {
	var out []PluginRef
	taken := map[int]bool{}
	for _, d := range defaults {
		if disables(change.Disabled, d.Name) {
			continue
		}
		if k := index(change.Enabled, d.Name); k >= 0 {
			d, taken[k] = change.Enabled[k], true
		}
		out = append(out, d)
	}
	for k, e := range change.Enabled {
		if !taken[k] {
			out = append(out, e)
		}
	}
	return out
}

func disables(list []PluginRef, name string) bool {
	return index(list, name) >= 0 || index(list, "*") >= 0
}

func index(list []PluginRef, name string) int {
	return slices.IndexFunc(list, func(r PluginRef) bool { return r.Name == name })
}

type placed[P framework.Plugin] struct {
	plugin P
	weight int32
}

func bare[P framework.Plugin](in []placed[P]) []P {
	var out []P
	for _, p := range in {
		out = append(out, p.plugin)
	}
	return out
}

// at lists the plugins of one extension point as Kubernetes orders them: those of the point's own that MultiPoint has too, then the rest of MultiPoint, then
// the rest of the point's own.
func at[P framework.Plugin](b *builder, point string, multi []PluginRef, own PluginSet) []placed[P] {
	var again, rest, more []placed[P]
	kind := strings.ToUpper(point[:1]) + point[1:] + "Plugin"
	for k, e := range own.Enabled {
		if index(own.Enabled[:k], e.Name) >= 0 {
			b.errs = append(b.errs, fmt.Errorf("plugin %q already registered as %q", e.Name, kind))
			continue
		}
		plugin := b.plugin(e.Name)
		p, ok := plugin.(P)
		switch {
		case plugin == nil:
		case !ok:
			b.errs = append(b.errs, fmt.Errorf("plugin %q does not extend %s plugin", e.Name, kind))
		case index(multi, e.Name) >= 0 && !disables(own.Disabled, e.Name):
			again = append(again, placed[P]{p, e.Weight})
		default:
			more = append(more, placed[P]{p, e.Weight})
		}
	}
	for k, m := range multi {
		p, ok := b.plugin(m.Name).(P)
		if !ok || disables(own.Disabled, m.Name) || index(own.Enabled, m.Name) >= 0 {
			continue
		}
		if index(multi[:k], m.Name) >= 0 {
			b.errs = append(b.errs, fmt.Errorf("plugin %q already registered as %q", m.Name, kind))
			continue
		}
		rest = append(rest, placed[P]{p, m.Weight})
	}
	return slices.Concat(again, rest, more)
}

// plugin makes a plugin once per profile.
func (b *builder) plugin(name string) framework.Plugin {
	if p, ok := b.made[name]; ok {
		return p
	}
	b.made[name] = nil
	factory, ok := b.factories[name]
	if !ok {
		b.errs = append(b.errs, fmt.Errorf("plugin %q does not exist", name))
		return nil
	}
	var args []byte
	for _, pc := range b.config.PluginConfig {
		if pc.Name == name {
			args = pc.Args
		}
	}
	p, err := factory(args, &b.handle)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("initializing plugin %q: %w", name, err))
		return nil
	}
	b.made[name] = p
	return p
}
