package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/scheduler/framework"
)

// Name is the plugin's name.
const Name = "DynamicResources"

// The defaults of DynamicResourcesArgs.
const (
	filterTimeout  = 10 * time.Second
	bindingTimeout = 600 * time.Second
)

type plugin struct {
	book           *Book
	filterTimeout  time.Duration
	bindingTimeout time.Duration
}

// Factory makes the plugin for a profile.
func (b *Book) Factory(raw []byte, _ *framework.Handle) (framework.Plugin, error) {
	var args struct {
		metav1.TypeMeta `json:",inline"`
		FilterTimeout   *metav1.Duration `json:"filterTimeout,omitempty"`
		BindingTimeout  *metav1.Duration `json:"bindingTimeout,omitempty"`
	}
	if len(raw) > 0 {
		var t metav1.TypeMeta
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
		if t.Kind != "" && t.Kind != Name+"Args" || t.APIVersion != "" && t.APIVersion != "kubescheduler.config.k8s.io/v1" {
			return nil, fmt.Errorf("arguments of plugin %s are %s %s; want kubescheduler.config.k8s.io/v1 %sArgs", Name, t.APIVersion, t.Kind, Name)
		}
		if err := yaml.UnmarshalStrict(raw, &args); err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
	}
	p := &plugin{book: b, filterTimeout: filterTimeout, bindingTimeout: bindingTimeout}
	var errs field.ErrorList
	if d := args.FilterTimeout; d != nil {
		if p.filterTimeout = d.Duration; d.Duration < 0 {
			errs = append(errs, field.Invalid(field.NewPath("filterTimeout"), d, "must be zero or positive"))
		}
	}
	if d := args.BindingTimeout; d != nil {
		if p.bindingTimeout = d.Duration; d.Duration < time.Second {
			errs = append(errs, field.Invalid(field.NewPath("bindingTimeout"), d, "must be at least 1 second"))
		}
	}
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
	}
	return p, nil
}

func (*plugin) Name() string                           { return Name }
func (*plugin) FilterScope() framework.Scope           { return framework.OnCluster }
func (*plugin) ScoreScope() framework.Scope            { return framework.OnCluster }
func (*plugin) Normalization() framework.Normalization { return framework.ByMax }

// state is what a cycle knows of the pod's claims.
type state struct {
	claims      []*podClaim // as the pod names them
	demands     []*demand   // of claims that are to get devices
	extended    *extended
	choosy      bool          // there are prioritized lists
	scores      map[int]int64 // by slot
	spec        string        // of the demands
	found       *findings     // for foundFor
	foundFor    string
	steps       int
	unavailable map[*podClaim]bool // allocated claims that keep the pod from some node

	placed []placement // from Reserve on
}

// podClaim is a claim of the pod.
type podClaim struct {
	claim    *resourcev1.ResourceClaim
	selector *nodeaffinity.NodeSelector // of the nodes where its devices are; nil is all
	shared   bool                       // its devices are set aside for another pod of the group: the claim does not carry them yet
}

// placement is what Reserve set aside.
type placement struct {
	claim      *resourcev1.ResourceClaim
	allocation *resourcev1.AllocationResult
	extended   bool
}

var skip = &framework.Status{Code: framework.Skip, Plugin: Name}

func refuse(reason string) *framework.Status {
	return framework.Refuse(framework.Unresolvable, Name, reason)
}

// PreEnqueue holds a pod back until its claims are there.
func (p *plugin) PreEnqueue(pod *framework.Pod) *framework.Status {
	if len(pod.Object.Spec.ResourceClaims) == 0 {
		return nil
	}
	if _, err := p.book.claimsOf(pod.Object); err != nil {
		return refuse(err.Error())
	}
	return nil
}

// claimsOf finds the claims of a pod, in order.
func (b *Book) claimsOf(pod *corev1.Pod) ([]*resourcev1.ResourceClaim, error) {
	var out []*resourcev1.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // none is needed
		}
		claim, ok := b.Claim(pod.Namespace, *name)
		switch {
		case !ok:
			return nil, fmt.Errorf("resourceclaim %q not found", *name)
		case claim.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resourceclaim %q is being deleted", *name)
		case owned:
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(out, claim) {
			out = append(out, claim)
		}
	}
	return out, nil
}

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(c *framework.Cycle) *framework.Status {
	pod := c.Pod.Object
	claims, err := p.book.claimsOf(pod)
	if err != nil {
		return refuse(err.Error())
	}
	s := &state{}
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	s.extended = p.book.extendedOf(c)
	if len(claims) == 0 && s.extended == nil {
		return skip
	}
	for _, claim := range claims {
		if status := p.read(s, pod, claim); status != nil {
			return status
		}
	}
	s.spec = specOf(s.demands)
	c.Put(Name, s)
	return nil
}

func (p *plugin) read(s *state, pod *corev1.Pod, claim *resourcev1.ResourceClaim) *framework.Status {
	pc := &podClaim{claim: claim}
	s.claims = append(s.claims, pc)
	a := claim.Status.Allocation
	if a == nil {
		if shared := p.book.shareable(claim, pod); shared != nil {
			pc.claim, pc.shared = shared, true
			return p.readNodes(pc)
		}
		if p.book.pending[claim.UID] != nil {
			return refuse(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
		}
		d, why := newDemand(claim, p.book.class)
		if why != "" {
			return refuse(why)
		}
		s.add(d)
		return nil
	}
	if len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize && !resourceclaim.IsReservedForPod(pod, claim, false) {
		return refuse(fmt.Sprintf("resourceclaim %s is in use by %d pods, which is the most that may share one", claim.Name, resourcev1.ResourceClaimReservedForMaxSize))
	}
	return p.readNodes(pc)
}

// readNodes reads on which nodes the devices of an allocated claim can be used.
func (p *plugin) readNodes(pc *podClaim) *framework.Status {
	a := pc.claim.Status.Allocation
	if a.NodeSelector == nil {
		return nil
	}
	var err error
	if pc.selector, err = nodeaffinity.NewNodeSelector(a.NodeSelector); err != nil {
		return framework.Fail(Name, fmt.Errorf("resource claim %s: nodes of its devices: %w", pc.claim.Name, err))
	}
	return nil
}

func (s *state) add(d *demand) {
	s.demands = append(s.demands, d)
	for _, alternatives := range d.requests {
		s.choosy = s.choosy || alternatives[0].name != alternatives[0].base
	}
}

var notHere = refuse("resourceclaim not available on the node")

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(c *framework.Cycle, i int) *framework.Status {
	s, ok := c.Get(Name).(*state)
	if !ok {
		return nil
	}
	node := c.Nodes.Object[i]
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	demands, status := p.book.demandsOn(c, s, i)
	if status != nil {
		return status
	}
	here := true
	for _, pc := range s.claims {
		if pc.claim.Status.Allocation != nil && !p.usable(pc, node) {
			if s.unavailable == nil {
				s.unavailable = map[*podClaim]bool{}
			}
			s.unavailable[pc], here = true, false
		}
	}
	if !here {
		return notHere
	}
	if len(demands) == 0 {
		return nil
	}
	f, lasting := p.find(s, i, node, demands)
	if lasting && f.status == nil && s.choosy {
		if s.scores == nil {
			s.scores = map[int]int64{}
		}
		s.scores[i] = f.score
	}
	return f.status
}

// find searches on a node, unless it is known what that would find; lasting is false if that may be something else next time.
func (p *plugin) find(s *state, i int, node *corev1.Node, demands []*demand) (_ *finding, lasting bool) {
	spec := s.spec
	if len(demands) > len(s.demands) {
		spec = s.extended.specOf(demands)
	}
	if s.found == nil || s.foundFor != spec {
		s.found, s.foundFor = p.book.memory.of(spec), spec
	}
	f := s.found.at(i)
	local, shared := p.book.stock.versions(node.Name)
	if spec != "" && f.node == node && f.local == local && f.shared == shared {
		return f, true
	}
	picks, status := p.search(s, node, demands)
	if status.Is(framework.Failed) || status == overall || status != nil && status.Message() == tooLong {
		return &finding{status: status}, false
	}
	*f = finding{node: node, local: local, shared: shared, status: status}
	for k := range picks {
		f.score += rating(demands[k], picks[k])
	}
	return f, true
}

// usable tells whether the devices of an allocated claim can be used on a node.
func (p *plugin) usable(pc *podClaim, node *corev1.Node) bool {
	if pc.selector != nil && !pc.selector.Match(node) {
		return false
	}
	ready, err := readyToBind(pc.claim)
	return err == nil && (ready || !p.overdue(pc.claim))
}

const tooLong = "timed out trying to allocate devices: the claims of the pod have too many combinations to try"

var overall = refuse("the search for devices was given up: the claims of the pod have too many combinations to try")

func (p *plugin) search(s *state, node *corev1.Node, demands []*demand) ([][]pick, *framework.Status) {
	if s.steps > stepsPerDecision {
		return nil, overall
	}
	picks, why, steps, err := p.book.stock.allocate(node, demands, deadline(p.book.config.Clock.Now, p.filterTimeout))
	s.steps += steps
	switch {
	case errors.Is(err, errTooLong):
		return nil, refuse(tooLong)
	case err != nil:
		return nil, framework.Fail(Name, err)
	case picks == nil:
		return nil, p.book.memory.refusal("cannot allocate all claims: " + why)
	}
	return picks, nil
}

// PostFilter gives back the devices of a claim that keep its only pod from everywhere else, so that it may get others.
func (p *plugin) PostFilter(c *framework.Cycle, _ *framework.Diagnosis) (string, bool, *framework.Status) {
	s, ok := c.Get(Name).(*state)
	if !ok {
		return "", true, framework.Refuse(framework.Unschedulable, Name, "no new claims to deallocate")
	}
	for _, pc := range s.claims {
		if !s.unavailable[pc] || pc.shared {
			continue
		}
		if by := pc.claim.Status.ReservedFor; len(by) == 0 || len(by) == 1 && by[0].UID == c.Pod.Object.UID {
			p.book.deallocate(pc.claim)
			return "", true, framework.Refuse(framework.Unschedulable, Name, "deallocation of ResourceClaim under way")
		}
	}
	if s.extended != nil && s.extended.stale != nil {
		p.book.discard(s.extended.stale)
		return "", true, framework.Refuse(framework.Unschedulable, Name, "deletion of ResourceClaim under way")
	}
	return "", true, framework.Refuse(framework.Unschedulable, Name, "still not schedulable")
}

// PreScore implements framework.PreScorePlugin: nodes differ only where a prioritized list leaves a choice.
func (p *plugin) PreScore(c *framework.Cycle, _ framework.Bits) *framework.Status {
	if s, ok := c.Get(Name).(*state); !ok || len(s.scores) == 0 {
		return skip
	}
	return nil
}

// Score implements framework.ScorePlugin.
func (p *plugin) Score(c *framework.Cycle, i int) int64 {
	s, ok := c.Get(Name).(*state)
	if !ok {
		return 0
	}
	return s.scores[i]
}

// Reserve sets devices aside.
func (p *plugin) Reserve(c *framework.Cycle, node string) *framework.Status {
	s, ok := c.Get(Name).(*state)
	i, known := c.Nodes.Lookup(node)
	if !ok || !known {
		return nil
	}
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	demands, status := p.book.demandsOn(c, s, i)
	if status == nil {
		status = p.book.share(s)
	}
	if status != nil || len(demands) == 0 {
		return status
	}
	for _, d := range demands {
		if p.book.pending[d.claim.UID] != nil { // another pod with the same claim was decided on meanwhile
			return refuse(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", d.claim.Namespace, d.claim.Name))
		}
	}
	picks, status := p.search(s, c.Nodes.Object[i], demands)
	if status != nil {
		return status
	}
	for k, d := range demands {
		a := d.result(c.Nodes.Object[i], picks[k])
		s.placed = append(s.placed, placement{claim: d.claim, allocation: a, extended: s.extended != nil && d == s.extended.demand(c, i)})
		p.book.setAside(d.claim.UID, a)
		p.book.setAsideBy(d.claim, c.Pod.Object)
	}
	return nil
}

// Columns implements framework.ColumnPlugin: nodes are all the same to a pod that wants no devices.
func (p *plugin) Columns(c *framework.Cycle, columns []*framework.Column) ([]*framework.Column, bool) {
	return columns, len(c.Pod.Object.Spec.ResourceClaims) == 0 && !p.book.backsAny(c)
}

// Shift implements framework.ShiftPlugin: pods that come and go in a simulation neither take nor free devices.
func (*plugin) Shift(*framework.Cycle, *framework.Pod, int, int) {}

// Events implements framework.HintPlugin.
func (*plugin) Events() framework.EventKind {
	return framework.ResourceClaimChanged | framework.DevicesChanged | framework.NodeAdded | framework.NodeLabels | framework.NodeAllocatable | framework.SelfChanged
}

// Helps leaves out events about claims of other pods, but for those that gave devices back.
func (p *plugin) Helps(pod *framework.Pod, e *framework.Event) bool {
	if e.Kind&framework.ResourceClaimChanged == 0 || e.Freed {
		return true
	}
	if e.Namespace != pod.Object.Namespace {
		return false
	}
	for i := range pod.Object.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod.Object, &pod.Object.Spec.ResourceClaims[i])
		if err == nil && name != nil && *name == e.Name {
			return true
		}
	}
	return false
}
