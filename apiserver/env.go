package apiserver

import (
	"context"
	"errors"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/kind"
)

type userInfo = user.Info

// environment is what the gate offers to kinds and admission plugins.
type environment struct{ server *Server }

var _ kind.Env = (*environment)(nil)

func (e *environment) Settings() kind.Settings { return e.server.cfg.Settings }

func (e *environment) Now() time.Time { return e.server.cfg.Clock.Now() }

// User is nobody in particular where the context carries no request.
func (e *environment) User(ctx context.Context) user.Info {
	if who, ok := ctx.Value(userKey{}).(user.Info); ok {
		return who
	}
	return &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
}

func (e *environment) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return e.server.cfg.Authorizer.Authorize(ctx, a)
}

func (e *environment) Rules(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, error) {
	if e.server.cfg.Rules == nil {
		return nil, nil, errors.New("the authorizer of this server cannot list rules")
	}
	resources, others, incomplete, err := e.server.cfg.Rules.RulesFor(ctx, who, namespace)
	if err == nil && incomplete {
		err = errors.New("an authorizer of this server cannot list its rules")
	}
	return resources, others, err
}

func (e *environment) Authenticate(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	if e.server.cfg.Tokens == nil {
		return nil, nil, false, errors.New("this server does not check tokens")
	}
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	response, ok, err := e.server.cfg.Tokens.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, nil, false, err
	}
	return response.User, response.Audiences, true, nil
}

func (e *environment) IssueToken(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if e.server.cfg.Issuer == nil {
		return nil, apierrors.NewServiceUnavailable("this server does not issue tokens")
	}
	return e.server.cfg.Issuer.IssueToken(ctx, namespace, name, request)
}

func (e *environment) resource(gr schema.GroupResource) (*verbs.Resource, error) {
	r, ok := e.server.registry.Resource(gr)
	if !ok || r.Kind.Virtual {
		return nil, apierrors.NewNotFound(gr, "")
	}
	return r, nil
}

func (e *environment) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	r, err := e.resource(gr)
	if err != nil {
		return nil, err
	}
	o, err := r.Get(ctx, r.Own(namespace, name), nil)
	if err != nil {
		return nil, err
	}
	return o.Hub(), nil
}

func (e *environment) List(_ context.Context, gr schema.GroupResource, namespace string) ([]kind.Object, error) {
	r, err := e.resource(gr)
	if err != nil {
		return nil, err
	}
	return r.All(namespace)
}

func (e *environment) Change(ctx context.Context, gr schema.GroupResource, namespace, name string, f func(kind.Object) error) (kind.Object, error) {
	return e.change(ctx, gr, namespace, name, stored.Copy, f)
}

func (e *environment) ChangeShallow(ctx context.Context, gr schema.GroupResource, namespace, name string, f func(kind.Object) error) (kind.Object, error) {
	return e.change(ctx, gr, namespace, name, stored.Shallow, f)
}

func (e *environment) change(ctx context.Context, gr schema.GroupResource, namespace, name string, copyOf func(kind.Object) kind.Object, f func(kind.Object) error) (kind.Object, error) {
	r, err := e.resource(gr)
	if err != nil {
		return nil, err
	}
	o, _, err := r.Edit(ctx, r.Own(namespace, name), &verbs.Edit{Internal: true, Build: func(old *stored.Object) (kind.Object, error) {
		obj := copyOf(old.Hub())
		return obj, f(obj)
	}})
	if err != nil {
		return nil, err
	}
	return o.Hub(), nil
}

func (e *environment) Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, opts metav1.DeleteOptions) (runtime.Object, error) {
	r, err := e.resource(gr)
	if err != nil {
		return nil, err
	}
	o, _, err := r.Delete(ctx, r.Own(namespace, name), &opts)
	if err != nil {
		return nil, err
	}
	return o.Hub(), nil
}
