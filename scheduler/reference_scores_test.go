package scheduler

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// rules are the arguments of plugins, and the weights of scores.
type rules struct {
	strategy               string
	resources              []weighed
	shape                  []point // of the strategy RequestedToCapacityRatio, with rising use
	balance                []corev1.ResourceName
	ignored, ignoredGroups []string
	hardWeight             int64
	ignoreSoft             bool
	added                  *corev1.NodeAffinity
	defaults               []corev1.TopologySpreadConstraint
	system                 bool // the defaults are the built-in ones
	weights                map[string]int64
}

type weighed struct {
	name   corev1.ResourceName
	weight int64
}

type point struct{ use, score int64 }

// kubernetes are the rules that a profile has unless it says otherwise.
func kubernetes() rules {
	return rules{strategy: "LeastAllocated", resources: []weighed{{"cpu", 1}, {"memory", 1}}, balance: []corev1.ResourceName{"cpu", "memory"}, hardWeight: 1, system: true,
		defaults: []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname, MaxSkew: 3, WhenUnsatisfiable: corev1.ScheduleAnyway},
			{TopologyKey: corev1.LabelTopologyZone, MaxSkew: 5, WhenUnsatisfiable: corev1.ScheduleAnyway}},
		weights: map[string]int64{"TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "PodTopologySpread": 2,
			"InterPodAffinity": 2}}
}

// config writes the rules down as a profile.
func (r *rules) config() ProfileConfig {
	type object = map[string]any
	strategy := object{"type": r.strategy}
	var resources, balance, shape []object
	for _, w := range r.resources {
		resources = append(resources, object{"name": w.name, "weight": w.weight})
	}
	for _, name := range r.balance {
		balance = append(balance, object{"name": name})
	}
	for _, p := range r.shape {
		shape = append(shape, object{"utilization": p.use, "score": p.score})
	}
	strategy["resources"] = resources
	if r.strategy == "RequestedToCapacityRatio" {
		strategy["requestedToCapacityRatio"] = object{"shape": shape}
	}
	spread := object{"defaultingType": "System"}
	if !r.system {
		spread = object{"defaultingType": "List", "defaultConstraints": r.defaults}
	}
	// All nodes are candidates of preemption, so that there is one best.
	out := ProfileConfig{SchedulerName: "test", Plugins: &PluginSets{}}
	for name, args := range map[string]object{"NodeResourcesFit": {"scoringStrategy": strategy, "ignoredResources": r.ignored, "ignoredResourceGroups": r.ignoredGroups},
		"NodeResourcesBalancedAllocation": {"resources": balance}, "InterPodAffinity": {"hardPodAffinityWeight": r.hardWeight, "ignorePreferredTermsOfExistingPods": r.ignoreSoft},
		"NodeAffinity": {"addedAffinity": r.added}, "PodTopologySpread": spread, "DefaultPreemption": {"minCandidateNodesPercentage": 100}} {
		raw, err := json.Marshal(args)
		if err != nil {
			panic(err)
		}
		out.PluginConfig = append(out.PluginConfig, PluginConfig{name, raw})
	}
	for _, name := range slices.Sorted(maps.Keys(r.weights)) {
		w := r.weights[name]
		out.Plugins.MultiPoint.Enabled = append(out.Plugins.MultiPoint.Enabled, PluginRef{name, int32(w)})
	}
	return out
}

// scores are the totals of the feasible nodes.
func (m *model) scores(p *corev1.Pod, feasible map[string]bool) map[string]int64 {
	total := map[string]int64{}
	add := func(plugin string, of map[string]int64) {
		for name := range feasible {
			total[name] += m.weights[plugin] * of[name]
		}
	}
	each := func(f func(p *corev1.Pod, n *corev1.Node) int64) map[string]int64 {
		out := map[string]int64{}
		for name := range feasible {
			out[name] = f(p, m.nodes[name])
		}
		return out
	}
	add("TaintToleration", byMax(each(intolerable), true))
	add("NodeAffinity", byMax(each(m.preferredNode), false))
	add("NodeResourcesFit", each(m.allocation))
	add("NodeResourcesBalancedAllocation", each(m.balanced))
	add("ImageLocality", each(m.images))
	add("PodTopologySpread", m.spreadScores(p, feasible))
	add("InterPodAffinity", stretch(each(m.company)))
	return total
}

func byMax(in map[string]int64, reversed bool) map[string]int64 {
	var most int64
	for _, v := range in {
		most = max(most, v)
	}
	out := map[string]int64{}
	for k, v := range in {
		if most > 0 {
			out[k] = 100 * v / most
		}
		if reversed {
			out[k] = 100 - out[k]
		}
	}
	return out
}

func stretch(in map[string]int64) map[string]int64 {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range in {
		least, most = min(least, v), max(most, v)
	}
	out := map[string]int64{}
	for k, v := range in {
		if most > least {
			out[k] = int64(100 * (float64(v-least) / float64(most-least)))
		}
	}
	return out
}

func intolerable(p *corev1.Pod, n *corev1.Node) (k int64) {
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !modelTolerates(p, t) {
			k++
		}
	}
	return k
}

func (m *model) preferredNode(p *corev1.Pod, n *corev1.Node) (sum int64) {
	for _, a := range []*corev1.NodeAffinity{m.added, nodeAffinityOf(p)} {
		if a == nil {
			continue
		}
		for _, w := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			if modelTermMatches(w.Preference, n) {
				sum += int64(w.Weight)
			}
		}
	}
	return sum
}

func nodeAffinityOf(p *corev1.Pod) *corev1.NodeAffinity {
	if p.Spec.Affinity == nil {
		return nil
	}
	return p.Spec.Affinity.NodeAffinity
}

// scarce resources count only for pods that ask for them.
func scarce(r corev1.ResourceName) bool {
	return strings.Contains(string(r), "/") || strings.HasPrefix(string(r), "hugepages-")
}

// unsetFor is what a container counts for that does not ask for a resource.
var unsetFor = map[corev1.ResourceName]int64{"cpu": 100, "memory": 200 << 20}

// allocation rates how full the node would be.
func (m *model) allocation(p *corev1.Pod, n *corev1.Node) int64 {
	var sum, weights int64
	for _, w := range m.resources {
		capacity, want := modelAllocatable(n, w.name), modelRequest(p, w.name, unsetFor[w.name])
		if capacity == 0 || want == 0 && scarce(w.name) {
			continue
		}
		use := m.used(n, w.name, unsetFor[w.name]) + want
		var score int64
		switch m.strategy {
		case "LeastAllocated":
			score = max(capacity-use, 0) * 100 / capacity
		case "MostAllocated":
			score = min(use, capacity) * 100 / capacity
		default:
			if score = m.onShape(min(use*100/capacity, 100)); score == 0 {
				continue
			}
		}
		sum, weights = sum+score*w.weight, weights+w.weight
	}
	switch {
	case weights == 0:
		return 0
	case m.strategy == "RequestedToCapacityRatio":
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// onShape interpolates; scores of the shape go up to 10.
func (m *model) onShape(use int64) int64 {
	first, last := m.shape[0], m.shape[len(m.shape)-1]
	if use <= first.use {
		return first.score * 10
	}
	for k := 1; k < len(m.shape); k++ {
		if a, b := m.shape[k-1], m.shape[k]; use <= b.use {
			return a.score*10 + (b.score-a.score)*10*(use-a.use)/(b.use-a.use)
		}
	}
	return last.score * 10
}

// balanced rates whether the pod makes the use of resources more even.
func (m *model) balanced(p *corev1.Pod, n *corev1.Node) int64 {
	var asks int64
	for _, r := range m.balance {
		asks += modelRequest(p, r, 0)
	}
	if asks == 0 {
		return 0
	}
	evenness := func(with int64) int64 {
		var parts []float64
		var sum float64
		for _, r := range m.balance {
			capacity, want := modelAllocatable(n, r), modelRequest(p, r, 0)
			if capacity == 0 || want == 0 && scarce(r) {
				continue
			}
			part := min(1, float64(m.used(n, r, 0)+with*want)/float64(capacity))
			parts, sum = append(parts, part), sum+part
		}
		var deviation float64
		switch len(parts) {
		case 0, 1:
		case 2:
			deviation = math.Abs(parts[0]-parts[1]) / 2
		default:
			mean := sum / float64(len(parts))
			var squares float64
			for _, part := range parts {
				squares += (part - mean) * (part - mean)
			}
			deviation = math.Sqrt(squares / float64(len(parts)))
		}
		return int64((1 - deviation) * 100)
	}
	return 50 + (50+evenness(1)-evenness(0))/2
}

// images rates what of the pod's images is there, the less the fewer nodes have it.
func (m *model) images(p *corev1.Pod, n *corev1.Node) int64 {
	size := func(o *corev1.Node, image string) int64 {
		if !strings.Contains(image, ":") {
			image += ":latest"
		}
		for _, i := range o.Status.Images {
			for _, name := range i.Names {
				if name == image {
					return i.SizeBytes
				}
			}
		}
		return 0
	}
	var wanted []string
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			wanted = append(wanted, c.Image)
		}
	}
	containers := int64(len(wanted))
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			wanted = append(wanted, v.Image.Reference)
		}
	}
	var sum int64
	for _, image := range wanted {
		on := 0
		for _, o := range m.nodes {
			if size(o, image) > 0 {
				on++
			}
		}
		sum += int64(float64(size(n, image)) * (float64(on) / float64(len(m.nodes))))
	}
	least, most := int64(23<<20), int64(1000<<20)*containers
	return 100 * (min(max(sum, least), most) - least) / (most - least)
}
