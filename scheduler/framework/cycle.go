package framework

import "slices"

// Cycle is one decision about one pod, from PreFilter to PostBind.
type Cycle struct {
	Pod     *Pod
	Nodes   *Nodes
	Profile *Profile

	class      *Class // unless restricted or direct
	data       map[string]any
	skipFilter []string
	skipScore  []string
	restricted bool
	direct     bool // decided for the node that was nominated; no class was asked
	only       []int
	by         []string // plugins that restricted the nodes
}

// Put keeps what a plugin prepared, under the plugin's name or a name derived from it.
func (c *Cycle) Put(key string, v any) {
	if c.data == nil {
		c.data = map[string]any{}
	}
	c.data[key] = v
}

// Get returns what Put kept; nil if nothing.
func (c *Cycle) Get(key string) any { return c.data[key] }

// Restrict makes only the named nodes eligible; called twice, the nodes of both. Unknown names are no nodes.
func (c *Cycle) Restrict(plugin string, names ...string) {
	var slots []int
	for _, name := range names {
		if i, ok := c.Nodes.Lookup(name); ok && (!c.restricted || slices.Contains(c.only, i)) && !slices.Contains(slots, i) {
			slots = append(slots, i)
		}
	}
	slices.Sort(slots)
	c.restricted, c.only, c.by = true, slots, append(c.by, plugin)
}

func (c *Cycle) skips(filter string) bool { return contains(c.skipFilter, filter) }

// Local tells, after PreFilter, whether pods on other nodes have no say in whether the pod fits on a node.
func (c *Cycle) Local() bool {
	for _, p := range c.Profile.onCluster {
		if _, steady := p.(SteadyFilter); !steady && !c.skips(p.Name()) {
			return false
		}
	}
	return true
}

// Begin starts a decision.
func (f *Profile) Begin(p *Pod) *Cycle {
	if f.nodes.numbered && !p.template.numbered && p.node < 0 { // parsed before numbers counted
		if t, err := f.nodes.templateOf(p.Object); err == nil {
			p.template = t
		}
	}
	return &Cycle{Pod: p, Nodes: f.nodes, Profile: f}
}

// preFilter asks the PreFilter plugins; a status other than nil ends the decision. Where preemption may help all are asked, since it needs what they prepare.
func (f *Profile) preFilter(c *Cycle) *Status {
	var refused *Status
	for _, p := range f.PreFilter {
		switch s := p.PreFilter(c); {
		case s.OK():
		case s.Code == Skip:
			c.skipFilter = append(c.skipFilter, p.Name())
		case s.Code == Unschedulable:
			refused = s
		default:
			return s
		}
	}
	return refused
}

// Fits judges one node with all filters as things are, after PreFilter.
func (f *Profile) Fits(c *Cycle, i int) *Status {
	if s := firstRefusal(f.onNode, c, i); s != nil {
		return s
	}
	if s := firstRefusal(f.onPods, c, i); s != nil {
		return s
	}
	return f.fitsCluster(c, i)
}

// FitsWithNominated is Fits, and again with the pods that wait for room there.
func (f *Profile) FitsWithNominated(c *Cycle, i int) *Status {
	if s := f.Fits(c, i); !s.OK() {
		return s
	}
	return f.fitsNominated(c, i)
}

func (f *Profile) fitsCluster(c *Cycle, i int) *Status {
	for _, p := range f.onCluster {
		if slices.Contains(c.skipFilter, p.Name()) {
			continue
		}
		if s := p.Filter(c, i); !s.OK() {
			return s
		}
	}
	return nil
}

// fitsNominated judges a node once more with the pods of at least the same priority that wait for room there.
func (f *Profile) fitsNominated(c *Cycle, i int) *Status {
	var others []*Pod
	for _, p := range f.nodes.Nominated[i] {
		if p.Priority >= c.Pod.Priority && p.Object.UID != c.Pod.Object.UID && p.node < 0 {
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		return nil
	}
	sim := f.Simulate(c)
	for _, p := range others {
		sim.Add(p, i)
	}
	s := f.Fits(c, i)
	sim.Undo()
	return s
}

// Simulation moves pods in the nodes' state and in what plugins prepared, and moves them back.
type Simulation struct {
	f     *Profile
	c     *Cycle
	start uint64 // the position in the journal of pods
	undo  []step
}

// step is what is to be done to take something back: put the pod on the node, or, if that is negative, take it off.
type step struct {
	pod  *Pod
	node int
}

// Simulate starts a simulation for a decision that is past PreFilter.
func (f *Profile) Simulate(c *Cycle) *Simulation {
	return &Simulation{f: f, c: c, start: f.nodes.pods.end()}
}

// Add puts a pod on a node.
func (s *Simulation) Add(p *Pod, node int) {
	back := slices.ContainsFunc(s.undo, func(was step) bool { return was.pod == p && was.node >= 0 })
	s.add(p, node, !back)
	s.undo = append(s.undo, step{p, -1})
}

// Remove takes a pod off its node.
func (s *Simulation) Remove(p *Pod) {
	node := p.node
	s.remove(p)
	s.undo = append(s.undo, step{p, node})
}

// Undo restores the state from before the simulation.
func (s *Simulation) Undo() {
	for k := len(s.undo) - 1; k >= 0; k-- {
		if was := s.undo[k]; was.node < 0 {
			s.remove(was.pod)
		} else {
			s.add(was.pod, was.node, false)
		}
	}
	s.undo = nil
	s.f.nodes.simulated -= uint64(s.f.nodes.pods.truncate(s.start)) // nobody saw what was taken back
}

// add puts a pod on a node; newly tells that it was not there when the decision began.
func (s *Simulation) add(p *Pod, node int, newly bool) {
	s.f.nodes.AddPod(p, s.f.nodes.Name[node])
	s.f.nodes.simulated++
	s.follow(p, node, 1, newly)
}

func (s *Simulation) remove(p *Pod) {
	node := p.node
	s.f.nodes.RemovePod(p)
	s.f.nodes.simulated++
	s.follow(p, node, -1, false)
}

func (s *Simulation) follow(p *Pod, node, sign int, newly bool) {
	for _, plugin := range s.f.onCluster {
		if slices.Contains(s.c.skipFilter, plugin.Name()) {
			if pre, ok := plugin.(PreFilterPlugin); ok && newly && pre.PreFilter(s.c).OK() { // the pod may be what it has something to say about
				s.c.skipFilter = slices.DeleteFunc(slices.Clone(s.c.skipFilter), func(n string) bool { return n == plugin.Name() })
			}
			continue
		}
		if follows, ok := plugin.(ShiftPlugin); ok {
			follows.Shift(s.c, p, node, sign)
		} else if pre, ok := plugin.(PreFilterPlugin); ok {
			pre.PreFilter(s.c)
		}
	}
}
