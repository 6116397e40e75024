package authn

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/lru"

	"github.com/yare-project/yare/apiserver/authz"
)

// Question is a request as the authorizer will be asked about it, with the user who really makes it.
type Question interface {
	Attributes() authorizer.AttributesRecord
}

// remembered is how many users' ways to impersonate are kept, as in Kubernetes.
const remembered = 10_000

// Impersonator judges who may act as whom. It is safe for concurrent use.
type Impersonator struct {
	// last is the mode by which each user impersonated last, by a digest of the name.
	last *lru.Cache
}

// NewImpersonator returns one that has seen nobody yet.
func NewImpersonator() *Impersonator { return &Impersonator{lru.New(remembered)} }

// Impersonate returns the user as whom a request shall act by its Impersonate-* headers, after who was found to be allowed each part of
// it. It returns who and false when nobody is impersonated. The headers are removed. The error is an *apierrors.StatusError.
//
// The right may be the old one, verb "impersonate", which holds for every request, or one of those of constrained impersonation (KEP-5284), which hold for
// chosen requests: see modes. The mode by which who impersonated last is tried first, then the others, the old right last. The refusal that is told is
// that of the first which is for such a user. All of this is as in Kubernetes.
func (i *Impersonator) Impersonate(ctx context.Context, h http.Header, who user.Info, a authorizer.Authorizer, request Question) (user.Info, bool, error) {
	if !impersonates(h) {
		return who, false, nil
	}
	wanted, asked, err := readImpersonation(h)
	if err != nil || !asked {
		return who, false, err
	}
	as, err := i.decide(ctx, &attempt{wanted: wanted, request: request, who: who, authorizer: a})
	if err != nil {
		return nil, false, err
	}
	stripImpersonation(h)
	return as, true, nil
}

func (i *Impersonator) decide(ctx context.Context, t *attempt) (user.Info, error) {
	key := digest(t.who.GetName())
	order := modes
	last, known := i.last.Get(key)
	if known {
		m := last.(*mode)
		order = append([]*mode{m}, slices.DeleteFunc(slices.Clone(modes), func(other *mode) bool { return other == m })...)
	}
	var refusal error
	for _, m := range order {
		if m.suits != nil && !m.suits(&t.wanted, t.who) {
			continue
		}
		as, err := m.try(ctx, t)
		if err == nil {
			if !known || last != m {
				i.last.Add(key, m)
			}
			return as, nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return nil, refusal
}

// digest bounds what is kept of a name. Two of one digest would only change the order in which modes are tried.
func digest(name string) [16]byte {
	h := fnv.New128a()
	_, _ = h.Write([]byte(name))
	return [16]byte(h.Sum(nil))
}

// attempt is a request that asks to act as somebody else.
type attempt struct {
	wanted     impersonation
	request    Question
	who        user.Info
	authorizer authorizer.Authorizer

	on *authorizer.AttributesRecord
}

// attributes are those of the request, with the user who really makes it.
func (t *attempt) attributes() authorizer.AttributesRecord {
	if t.on == nil {
		on := t.request.Attributes()
		on.User = t.who
		t.on = &on
	}
	return *t.on
}

// impersonates tells whether there is any of the headers.
func impersonates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// allowedAll returns the first refusal.
func allowedAll(ctx context.Context, a authorizer.Authorizer, who user.Info, checks []authorizer.AttributesRecord) error {
	for _, attributes := range checks {
		attributes.User = who
		decision, reason, err := a.Authorize(ctx, attributes)
		if decision == authorizer.DecisionAllow {
			continue
		}
		if err != nil {
			reason = strings.TrimSuffix(err.Error()+": "+reason, ": ")
		}
		return authz.Forbidden(attributes, reason)
	}
	return nil
}

// impersonation is what the headers ask for.
type impersonation struct {
	user.DefaultInfo
	// namespace and account are set when the user is a service account.
	namespace, account string
}

func readImpersonation(h http.Header) (impersonation, bool, error) {
	var w impersonation
	w.Name = h.Get(authenticationv1.ImpersonateUserHeader)
	w.UID = h.Get(authenticationv1.ImpersonateUIDHeader)
	w.Groups = slices.Clone(h.Values(authenticationv1.ImpersonateGroupHeader))
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix); ok {
			if w.Extra == nil {
				w.Extra = map[string][]string{}
			}
			key = unescape(strings.ToLower(key))
			w.Extra[key] = append(w.Extra[key], values...)
		}
	}
	if w.Name == "" {
		if w.UID != "" || len(w.Groups) > 0 || len(w.Extra) > 0 {
			return w, false, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", &w.DefaultInfo))
		}
		return w, false, nil
	}
	if namespace, name, err := serviceaccount.SplitUsername(w.Name); err == nil {
		w.namespace, w.account = namespace, name
	}
	return w, true, nil
}

// impersonationChecks are what must be allowed, in Kubernetes' order.
type impersonationChecks struct {
	name          []authorizer.AttributesRecord // and the UID
	groups, extra []authorizer.AttributesRecord
}

func (c *impersonationChecks) all() []authorizer.AttributesRecord {
	return slices.Concat(c.name, c.groups, c.extra)
}

func checksOf(w impersonation) *impersonationChecks {
	check := func(group, version, resource, sub, namespace, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "impersonate", APIGroup: group, APIVersion: version, Resource: resource, Subresource: sub,
			Namespace: namespace, Name: name, ResourceRequest: true}
	}
	var out impersonationChecks
	if w.account != "" {
		out.name = append(out.name, check("", "v1", "serviceaccounts", "", w.namespace, w.account))
	} else {
		out.name = append(out.name, check("", "v1", "users", "", "", w.Name))
	}
	if w.UID != "" {
		out.name = append(out.name, check(authenticationv1.GroupName, "v1", "uids", "", "", w.UID))
	}
	for _, g := range w.Groups {
		out.groups = append(out.groups, check("", "v1", "groups", "", "", g))
	}
	for _, k := range slices.Sorted(maps.Keys(w.Extra)) {
		for _, v := range w.Extra[k] {
			out.extra = append(out.extra, check(authenticationv1.GroupName, "v1", "userextras", k, "", v))
		}
	}
	return &out
}

// completeImpersonation adds the groups that follow from who the user is.
func completeImpersonation(w impersonation) *user.DefaultInfo {
	out := w.DefaultInfo
	if w.account != "" && len(out.Groups) == 0 {
		out.Groups = serviceaccount.MakeGroupNames(w.namespace)
	}
	implied := user.AllAuthenticated
	if out.Name == user.Anonymous {
		implied = user.AllUnauthenticated
	}
	if !slices.Contains(out.Groups, implied) && !slices.Contains(out.Groups, user.AllUnauthenticated) {
		out.Groups = append(out.Groups, implied)
	}
	return &out
}

func stripImpersonation(h http.Header) {
	h.Del(authenticationv1.ImpersonateUserHeader)
	h.Del(authenticationv1.ImpersonateGroupHeader)
	h.Del(authenticationv1.ImpersonateUIDHeader)
	for name := range h {
		if strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix) {
			h.Del(name)
		}
	}
}
