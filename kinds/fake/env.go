// Package fake is a kind.Env that keeps objects in memory, for tests of kinds and admission plugins. It decides nothing by itself: who
// may do what comes from the authorizer that a test plugs in; without one, everything is refused.
package fake

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/kind"
)

// Env is the fake. Set its fields before use.
type Env struct {
	Choices    kind.Settings
	Time       time.Time
	Who        user.Info
	Authorizer authorizer.Authorizer
	Resolver   authorizer.RuleResolver
	Tokens     func(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error)
	Issue      func(ctx context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)

	mu      sync.Mutex
	objects map[key]kind.Object
}

type key struct {
	schema.GroupResource
	types.NamespacedName
}

var _ kind.Env = (*Env)(nil)

// Put adds or replaces an object.
func (e *Env) Put(group, resource string, obj kind.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.objects == nil {
		e.objects = map[key]kind.Object{}
	}
	e.objects[key{schema.GroupResource{Group: group, Resource: resource}, types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}}] = obj
}

// Settings returns Choices.
func (e *Env) Settings() kind.Settings { return e.Choices }

// Now returns Time.
func (e *Env) Now() time.Time { return e.Time }

// User returns Who.
func (e *Env) User(context.Context) user.Info { return e.Who }

// Authorize asks the plugged-in authorizer.
func (e *Env) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if e.Authorizer == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return e.Authorizer.Authorize(ctx, a)
}

// Rules asks the plugged-in resolver.
func (e *Env) Rules(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, error) {
	if e.Resolver == nil {
		return nil, nil, nil
	}
	resources, others, partial, err := e.Resolver.RulesFor(ctx, who, namespace)
	if partial && err == nil {
		err = errors.New("incomplete")
	}
	return resources, others, err
}

// Authenticate asks Tokens.
func (e *Env) Authenticate(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	if e.Tokens == nil {
		return nil, nil, false, nil
	}
	return e.Tokens(ctx, token, audiences)
}

// IssueToken asks Issue.
func (e *Env) IssueToken(ctx context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if e.Issue == nil {
		return nil, apierrors.NewInternalError(errors.New("no token issuer"))
	}
	return e.Issue(ctx, namespace, account, r)
}

// Get reads an object.
func (e *Env) Get(_ context.Context, resource schema.GroupResource, namespace, name string) (kind.Object, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if obj, ok := e.objects[key{resource, types.NamespacedName{Namespace: namespace, Name: name}}]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

// List reads the objects of a namespace, or all.
func (e *Env) List(_ context.Context, resource schema.GroupResource, namespace string) ([]kind.Object, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []kind.Object
	for k, obj := range e.objects {
		if k.GroupResource == resource && (namespace == "" || k.Namespace == namespace) {
			out = append(out, obj)
		}
	}
	return out, nil
}

// Change applies f to a copy and keeps it.
func (e *Env) Change(ctx context.Context, resource schema.GroupResource, namespace, name string, f func(kind.Object) error) (kind.Object, error) {
	obj, err := e.Get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopyObject().(kind.Object)
	if err := f(obj); err != nil {
		return nil, err
	}
	kind.RoundTimes(obj) // as the gate
	e.Put(resource.Group, resource.Resource, obj)
	return obj, nil
}

// ChangeShallow is Change that catches who changes what is shared.
func (e *Env) ChangeShallow(ctx context.Context, resource schema.GroupResource, namespace, name string, f func(kind.Object) error) (kind.Object, error) {
	old, err := e.Get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	before, obj := old.DeepCopyObject(), shallow(old)
	if err := f(obj); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(before, old) {
		return nil, fmt.Errorf("a shallow change of %s %q changed what it shares with the state before", resource.Resource, name)
	}
	kind.RoundTimes(obj)
	e.Put(resource.Group, resource.Resource, obj)
	return obj, nil
}

// shallow copies an object's own fields.
func shallow(obj kind.Object) kind.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(kind.Object)
}

// Delete forgets an object.
func (e *Env) Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, _ metav1.DeleteOptions) (runtime.Object, error) {
	obj, err := e.Get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.objects, key{resource, types.NamespacedName{Namespace: namespace, Name: name}})
	return obj, nil
}
