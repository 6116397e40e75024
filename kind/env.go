package kind

import (
	"context"
	"net/netip"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Settings are the cluster's choices that kinds need.
type Settings struct {
	ServiceCIDRs     []netip.Prefix
	NodePortMin      int // inclusive
	NodePortMax      int // inclusive
	ClusterDomain    string
	DefaultTokenTTL  time.Duration
	MaxTokenTTL      time.Duration
	TokenIssuer      string
	TokenAudiences   []string
	EventTTL         time.Duration
	NodeAgentPort    int
	ServiceNodeRange string
}

// Env is what the gate offers to the few kinds whose behaviour reaches beyond their own object. Reads and changes through it are the
// server's own: the user's right to the request was checked before.
type Env interface {
	Settings() Settings
	Now() time.Time
	// User is who makes the request of ctx.
	User(ctx context.Context) user.Info
	Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error)
	// Rules lists what a user may do in a namespace; incomplete is why the list may miss something.
	Rules(ctx context.Context, who user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, nonResources []authorizer.NonResourceRuleInfo, incomplete error)
	// Authenticate checks a bearer token for audiences; ok is false if nobody recognised it.
	Authenticate(ctx context.Context, token string, audiences []string) (who user.Info, matched []string, ok bool, err error)
	// IssueToken signs a token for a service account, bound to the object that the request names.
	IssueToken(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	// Get and List read newest visible objects of the hub version: shared, never to be changed.
	Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (Object, error)
	List(ctx context.Context, resource schema.GroupResource, namespace string) ([]Object, error)
	// Change applies f to a copy of an object and commits it, again if another writer came between. It is the server's own change: admission and the kind's
	// rules for users (Validate, status separation) do not apply; the rules for metadata do.
	Change(ctx context.Context, resource schema.GroupResource, namespace, name string, f func(obj Object) error) (Object, error)
	// ChangeShallow is Change where f gets a copy of the object's own fields only (those of its metadata, spec and status are its own). What they point to is shared with
	// readers of the state before: f sets new maps and slices, and never changes one.
	ChangeShallow(ctx context.Context, resource schema.GroupResource, namespace, name string, f func(obj Object) error) (Object, error)
	Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, opts metav1.DeleteOptions) (runtime.Object, error)
}
