package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/admission"
)

// leftOut are the admission plugins that a simulation does without: they ask for what it does not read, or count what it does not count.
var leftOut = []string{"NamespaceLifecycle", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "PodSecurity", "ResourceQuota", "PodTopologyLabels",
	"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass"}

// gate creates objects in a memory as the API server does: defaulted, admitted and validated.
type gate struct {
	memory     *memory
	now        time.Time
	kinds      map[schema.GroupKind]*kind.Kind
	mutators   []kind.Mutator
	validators []kind.Validator
	born       int // objects so far
}

func newGate(m *memory, now time.Time) (*gate, error) {
	g := &gate{memory: m, now: now, kinds: builtin()}
	var err error
	g.mutators, g.validators, err = admission.Build(admission.Config{Choice: admission.Choice{Disable: leftOut}})
	return g, err
}

// create stores a copy of o and returns it, or says why the API server would not.
func (g *gate) create(ctx context.Context, o client.Object) (client.Object, error) {
	o, err := g.prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	g.memory.put(o)
	return o, nil
}

// prepare is create without storing.
func (g *gate) prepare(ctx context.Context, given client.Object) (client.Object, error) {
	gvk, _ := client.KindOf(given)
	k := g.kinds[gvk.GroupKind()]
	if k == nil || k.Hub != gvk {
		return nil, fmt.Errorf("%s is no kind that a simulation can create", gvk)
	}
	o := given.DeepCopyObject().(client.Object)
	if k.Scope == kind.Cluster {
		o.SetNamespace("")
	}
	g.identify(o)
	gvr := client.ResourceFor(gvk)
	r := &kind.AdmissionRequest{Operation: admissionv1.Create, Kind: k, Ref: resource.Ref{GroupVersionResource: gvr, Namespace: o.GetNamespace(), Name: o.GetName()},
		User: &user.DefaultInfo{Name: "simulation"}, Object: o, Options: &metav1.CreateOptions{}, Warn: func(string) {}}
	if k.Default != nil {
		k.Default(o)
	}
	for _, m := range g.mutators {
		if err := m.Mutate(ctx, env{gate: g}, r); err != nil {
			return nil, err
		}
	}
	if k.Default != nil {
		k.Default(o)
	}
	status, _ := o.DeepCopyObject().(client.Object)
	if k.Prepare != nil {
		k.Prepare(o, nil)
	}
	if k.CopyStatus != nil && keepsStatus(gvk) {
		k.CopyStatus(o, status)
	}
	if k.Validate != nil {
		if errs := k.Validate(o, nil); len(errs) > 0 {
			return nil, apierrors.NewInvalid(gvk.GroupKind(), o.GetName(), errs)
		}
	}
	for _, v := range g.validators {
		if err := v.Validate(ctx, env{gate: g}, r); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// keepsStatus tells whether an object's status counts although it is new: a Node is what its kubelet will say it is, a budget what its controller found.
func keepsStatus(k schema.GroupVersionKind) bool {
	return k.Kind == "Node" || k.Kind == "PodDisruptionBudget" || k.Kind == "PersistentVolume" || k.Kind == "PersistentVolumeClaim"
}

// identify gives an object what the server would. Names and uids are the same in every run.
func (g *gate) identify(o client.Object) {
	g.born++
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), g.born))
	}
	o.SetUID(types.UID(fmt.Sprintf("simulated-%d", g.born)))
	o.SetCreationTimestamp(metav1.NewTime(g.now))
	o.SetResourceVersion("")
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetGeneration(1)
	o.SetManagedFields(nil)
}

// env is what admission plugins may ask. They look objects up; everything else is not for a simulation.
type env struct{ gate *gate }

var _ kind.Env = env{}

func (e env) Now() time.Time                 { return e.gate.now }
func (e env) Settings() kind.Settings        { return kind.Settings{} }
func (e env) User(context.Context) user.Info { return &user.DefaultInfo{Name: "simulation"} }

func (e env) Get(ctx context.Context, r schema.GroupResource, namespace, name string) (kind.Object, error) {
	gvr, ok := versioned(r)
	if !ok {
		return nil, apierrors.NewNotFound(r, name)
	}
	o, err := e.gate.memory.Get(ctx, resource.Ref{GroupVersionResource: gvr, Namespace: namespace, Name: name}, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return o.(client.Object), nil
}

func (e env) List(_ context.Context, r schema.GroupResource, namespace string) ([]kind.Object, error) {
	gvr, ok := versioned(r)
	if !ok {
		return nil, nil
	}
	var out []kind.Object
	for _, o := range e.gate.memory.all(gvr, namespace) {
		out = append(out, o)
	}
	return out, nil
}

var errNotSimulated = errors.New("not simulated")

func (env) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

func (env) Rules(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, error) {
	return nil, nil, errNotSimulated
}

func (env) Authenticate(context.Context, string, []string) (user.Info, []string, bool, error) {
	return nil, nil, false, errNotSimulated
}

func (env) IssueToken(context.Context, string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return nil, errNotSimulated
}

func (env) Change(context.Context, schema.GroupResource, string, string, func(kind.Object) error) (kind.Object, error) {
	return nil, errNotSimulated
}

func (env) ChangeShallow(context.Context, schema.GroupResource, string, string, func(kind.Object) error) (kind.Object, error) {
	return nil, errNotSimulated
}

func (env) Delete(context.Context, schema.GroupResource, string, string, metav1.DeleteOptions) (runtime.Object, error) {
	return nil, errNotSimulated
}
