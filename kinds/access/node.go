package access

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/internal/roles"
)

// NodePrefix begins the name of a node's user; its group is system:nodes.
const NodePrefix = "system:node:"

// NodeOf returns the node whose agent a user is: by the prefix of the name and the group, both. The name may turn out empty: then nothing
// may be granted.
func NodeOf(who user.Info) (node string, isNode bool) {
	if who == nil || !strings.HasPrefix(who.GetName(), NodePrefix) || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return strings.TrimPrefix(who.GetName(), NodePrefix), true
}

// Node is the authorizer of node agents. A node may read its own Node, Lease and CSINode, the pods bound to it, and what these pods
// need: secrets, config maps, claims with their volumes and secrets, resource claims; and it may make tokens for these pods' service
// accounts. What it may write of that, NodeRestriction looks at, because it takes the object to tell.
type Node struct {
	graph *graph
	rules []rbacv1.PolicyRule
	clock clock.WithTicker
	// patience bounds how long a refusal waits for the graph to hear of a pod that the node knows already.
	patience time.Duration
	pending  atomic.Int32
	synced   chan struct{}
}

var (
	_ authorizer.Authorizer   = (*Node)(nil)
	_ authorizer.RuleResolver = (*Node)(nil)
)

// NewNode returns an authorizer; clk is the real clock when nil. Feed it with Run.
func NewNode(clk clock.WithTicker) *Node {
	if clk == nil {
		clk = clock.RealClock{}
	}
	n := &Node{graph: newGraph(), rules: NodeRules(), clock: clk, patience: 200 * time.Millisecond, synced: make(chan struct{})}
	n.pending.Store(int32(len(nodeFeeds)))
	return n
}

var nodeFeeds = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("pods"),
	corev1.SchemeGroupVersion.WithResource("persistentvolumes"),
	storagev1.SchemeGroupVersion.WithResource("volumeattachments"),
	resourcev1.SchemeGroupVersion.WithResource("resourceslices"),
}

// Run keeps the authorizer in step with the source until ctx ends. The source must not need this authorizer.
func (n *Node) Run(ctx context.Context, source follow.Source, log *slog.Logger) error {
	var group sync.WaitGroup
	for _, gvr := range nodeFeeds {
		group.Go(func() {
			_ = follow.Run(ctx, follow.Config{ // ends with ctx only
				Source: source, Ref: resource.Ref{GroupVersionResource: gvr}, Clock: n.clock, Log: log,
				Set: n.graph.set, Drop: n.graph.drop,
				Synced: func() {
					if n.pending.Add(-1) == 0 {
						close(n.synced)
					}
				},
			})
		})
	}
	group.Wait()
	return nil
}

// Synced is closed once Run has loaded everything.
func (n *Node) Synced() <-chan struct{} { return n.synced }

// RulesFor says that a node's rights cannot be listed: they depend on each object.
func (n *Node) RulesFor(_ context.Context, who user.Info, _ string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, ok := NodeOf(who); ok {
		return nil, nil, true, fmt.Errorf("node authorizer does not support user rule resolution")
	}
	return nil, nil, false, nil
}

// Authorize judges requests of nodes and has no opinion on others'. A request that it does not allow may still be allowed by RBAC.
func (n *Node) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := NodeOf(a.GetUser())
	if !ok {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if node == "" {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", a.GetUser().GetName()), nil
	}
	v := n.judge(node, a)
	if v.needs != nil && !n.related(ctx, node, *v.needs) {
		v = refuse("no relationship found between node '%s' and this object", node)
	}
	if v.ok {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, v.reason, nil
}

// related waits a little before it says no: the node may have heard of its pod a moment before the graph did.
func (n *Node) related(ctx context.Context, node string, o object) bool {
	ok, changed := n.graph.related(node, o)
	if ok {
		return true
	}
	timer := n.clock.NewTimer(n.patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C():
			return false
		case <-changed:
			if ok, changed = n.graph.related(node, o); ok {
				return true
			}
		}
	}
}

// verdict is a decision, perhaps on the condition that the node has to do with an object.
type verdict struct {
	ok     bool
	reason string
	needs  *object
}

func grant() verdict { return verdict{ok: true} }

func refuse(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }

func ifRelated(k kindOf, a authorizer.Attributes) verdict {
	if a.GetName() == "" {
		return refuse("No Object name found")
	}
	return verdict{ok: true, needs: &object{k, a.GetNamespace(), a.GetName()}}
}

// judge is the pure part: the rules of each resource, then those that are the same for all nodes.
func (n *Node) judge(node string, a authorizer.Attributes) verdict {
	if a.IsResourceRequest() {
		if f, ok := nodeResources[schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}]; ok {
			return f(node, a)
		}
	}
	q := roles.RequestOf(a)
	for i := range n.rules {
		if q.AllowedBy(&n.rules[i]) {
			return grant()
		}
	}
	return verdict{}
}

// selects tells whether a list or watch is narrowed to one value of a field.
func selects(a authorizer.Attributes, field, value string) bool {
	requirements, _ := a.GetFieldSelector()
	for _, r := range requirements {
		if r.Field == field && (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) && r.Value == value {
			return true
		}
	}
	return false
}
