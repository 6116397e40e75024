package admission

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/kind"
)

// resourceQuota refuses what would use more than the ResourceQuotas of its namespace allow. What a request will use is charged in each quota's status
// before the object is stored, by compare and swap, so that concurrent requests never get more together than there is. A request that is refused or fails
// after it was charged is found by the loop that counts.
type resourceQuota struct {
	ledger *quota.Ledger
	// limited is what may be used only where a quota bounds it.
	limited []limitedResource
}

func (resourceQuota) Name() string { return "ResourceQuota" }

var quotas = schema.GroupResource{Resource: "resourcequotas"}

// demand is what a request will use of one quota.
type demand struct {
	quota  *corev1.ResourceQuota
	amount corev1.ResourceList
}

func (p resourceQuota) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.Ref.Namespace == "" || !charges(r) || r.Kind != nil && r.Kind.Virtual {
		return nil
	}
	all, err := list[*corev1.ResourceQuota](ctx, env, "", "resourcequotas", r.Ref.Namespace)
	if err != nil || len(all) == 0 && len(p.limited) == 0 {
		return err
	}
	slices.SortFunc(all, func(a, b *corev1.ResourceQuota) int { return strings.Compare(a.Name, b.Name) })
	var demands []demand
	for _, q := range all {
		amount, err := demandOf(env, r, q)
		if err != nil {
			return err
		}
		if len(amount) == 0 {
			continue
		}
		if err := fits(r, q, amount); err != nil {
			return err
		}
		demands = append(demands, demand{q, amount})
	}
	if err := p.bounded(env, r, all); err != nil {
		return err
	}
	if len(demands) == 0 || r.DryRun || exists(ctx, env, r) {
		return nil
	}
	return p.charge(ctx, env, r, demands)
}

// bounded refuses the use of what is limited where no quota bounds it.
func (p resourceQuota) bounded(env kind.Env, r *kind.AdmissionRequest, all []*corev1.ResourceQuota) error {
	if len(p.limited) == 0 {
		return nil
	}
	gr := r.Ref.GroupResource()
	usage := quota.Usage(gr, r.Object, env.Now())
	more := usage
	if r.Old != nil {
		more = quota.Increase(usage, quota.Usage(gr, r.Old, env.Now()))
	}
	if len(quota.Exceeded(more, nil, zeros(more))) == 0 {
		return nil // it uses nothing more
	}
	if lacks := p.unbounded(r, usage, all); len(lacks) > 0 {
		return forbid(r, "insufficient quota to consume: %s", strings.Join(lacks, ","))
	}
	if lacks := p.outOfScope(r, all); len(lacks) > 0 {
		return forbid(r, "insufficient quota to match these scopes: %v", lacks)
	}
	return nil
}

func zeros(l corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for n := range l {
		out[n] = resource.Quantity{}
	}
	return out
}

// unbounded are the limited things that an object uses and no quota counts.
func (p resourceQuota) unbounded(r *kind.AdmissionRequest, usage corev1.ResourceList, all []*corev1.ResourceQuota) []string {
	gr := r.Ref.GroupResource()
	lacks := map[string]bool{}
	for _, l := range p.limited {
		if l.APIGroup != gr.Group || l.Resource != gr.Resource {
			continue
		}
		for name, q := range usage {
			if q.Sign() > 0 && slices.ContainsFunc(l.MatchContains, func(part string) bool { return strings.Contains(string(name), part) }) {
				lacks[string(name)] = true
			}
		}
	}
	for _, q := range all {
		if len(lacks) > 0 && quota.InScope(q, r.Object) {
			for _, name := range quota.Covered(gr, q.Status.Hard) {
				delete(lacks, string(name))
			}
		}
	}
	return slices.Sorted(maps.Keys(lacks))
}

// outOfScope are the limited scopes that an object is in and no quota is about.
func (p resourceQuota) outOfScope(r *kind.AdmissionRequest, all []*corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	covered := map[corev1.ResourceQuotaScope]bool{}
	for _, q := range all {
		for _, s := range scopesOf(q) {
			covered[s.ScopeName] = covered[s.ScopeName] || holds(s, r.Object)
		}
	}
	var lacks []corev1.ScopedResourceSelectorRequirement
	for _, l := range p.limited {
		for _, s := range l.MatchScopes {
			if !covered[s.ScopeName] && holds(s, r.Object) {
				lacks = append(lacks, s)
			}
		}
	}
	return lacks
}

func scopesOf(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, s := range q.Spec.Scopes {
		out = append(out, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		out = append(out, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return out
}

// holds tells whether an object is in a scope.
func holds(s corev1.ScopedResourceSelectorRequirement, obj kind.Object) bool {
	return quota.InScope(&corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{
		MatchExpressions: []corev1.ScopedResourceSelectorRequirement{s}}}}, obj)
}

// charges tells whether a request may change what its object uses.
func charges(r *kind.AdmissionRequest) bool {
	gr := r.Ref.GroupResource()
	switch {
	case r.Object == nil || quota.Ignored(gr):
		return false
	case r.Operation == admissionv1.Create:
		return r.Ref.Subresource == ""
	case r.Operation != admissionv1.Update || r.Old == nil || !quota.Measured(gr):
		return false
	}
	switch new := r.Object.(type) {
	case *corev1.Pod:
		old, ok := r.Old.(*corev1.Pod)
		return r.Ref.Subresource == "resize" || r.Ref.Subresource == "" && ok && quota.Terminating(old) != quota.Terminating(new)
	case *corev1.PersistentVolumeClaim:
		return r.Ref.Subresource == "" || r.Ref.Subresource == "status"
	}
	return r.Ref.Subresource == ""
}

// demandOf is what a request will use of a quota beyond what its object uses already; nothing if the quota is not about it. A quota whose limits no loop
// has taken over yet binds nobody.
func demandOf(env kind.Env, r *kind.AdmissionRequest, q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	gr := r.Ref.GroupResource()
	bounded := quota.Covered(gr, q.Status.Hard)
	if len(bounded) == 0 || !quota.InScope(q, r.Object) {
		return nil, nil
	}
	if lacks := quota.Missing(r.Object, bounded); lacks != "" {
		return nil, forbid(r, "failed quota: %s: must specify %s", q.Name, lacks)
	}
	usage := quota.Usage(gr, r.Object, env.Now())
	if r.Old != nil && quota.InScope(q, r.Old) {
		usage = quota.Increase(usage, quota.Usage(gr, r.Old, env.Now()))
	}
	return quota.Mask(usage, bounded), counted(r, q, bounded)
}

// counted refuses a request as long as nobody knows what is used.
func counted(r *kind.AdmissionRequest, q *corev1.ResourceQuota, bounded []corev1.ResourceName) error {
	var unknown []string
	for _, n := range bounded {
		if _, ok := q.Status.Used[n]; !ok {
			unknown = append(unknown, string(n))
		}
	}
	if len(unknown) > 0 {
		return forbid(r, "status unknown for quota: %s, resources: %s", q.Name, strings.Join(unknown, ","))
	}
	return nil
}

func fits(r *kind.AdmissionRequest, q *corev1.ResourceQuota, amount corev1.ResourceList) error {
	if r.Ref.Subresource == "status" {
		return nil // it reports what is already so
	}
	over := quota.Exceeded(amount, q.Status.Used, q.Status.Hard)
	if len(over) == 0 {
		return nil
	}
	return forbid(r, "exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, quota.Text(quota.Pick(amount, over)),
		quota.Text(quota.Pick(q.Status.Used, over)), quota.Text(quota.Pick(q.Status.Hard, over)))
}

// exists tells whether a create will fail because of its name, so that nothing need be charged.
func exists(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) bool {
	if r.Operation != admissionv1.Create {
		return false
	}
	_, err := env.Get(ctx, r.Ref.GroupResource(), r.Ref.Namespace, r.Object.GetName())
	return err == nil
}

// charge writes the demands into all quotas, or takes them back.
func (p resourceQuota) charge(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, demands []demand) error {
	c := &quota.Charge{Namespace: r.Ref.Namespace, Object: r.Object.GetUID(), Amounts: map[types.UID]corev1.ResourceList{}}
	if r.Old != nil {
		c.Since = r.Old.GetResourceVersion()
	}
	for _, d := range demands {
		c.Amounts[d.quota.UID] = d.amount
	}
	p.ledger.Open(c, env.Now())
	for _, d := range demands {
		version, err := p.write(ctx, env, r, d)
		if err != nil {
			p.ledger.Void(c)
			return err
		}
		p.ledger.Written(c, d.quota.UID, version)
	}
	return nil
}

// errReplaced says that a quota is another one by now, or none: it was not there when the request came, or is gone.
var errReplaced = errors.New("the quota is gone")

func (p resourceQuota) write(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, d demand) (version string, err error) {
	now, err := env.Change(ctx, quotas, r.Ref.Namespace, d.quota.Name, func(obj kind.Object) error {
		q, ok := obj.(*corev1.ResourceQuota)
		if !ok || q.UID != d.quota.UID {
			return errReplaced
		}
		amount := quota.Mask(d.amount, quota.Names(q.Status.Hard))
		if err := counted(r, q, quota.Names(amount)); err != nil {
			return err
		}
		if err := fits(r, q, amount); err != nil {
			return err
		}
		q.Status.Used = quota.Add(q.Status.Used, amount)
		return nil
	})
	switch {
	case errors.Is(err, errReplaced), apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return now.GetResourceVersion(), nil
}
