// Package authentication declares the kinds of authentication.k8s.io (v1): questions about who somebody is. Nothing of them is stored.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/kind"
)

// Group is the authentication group.
var Group = kind.Group{Name: authenticationv1.GroupName, Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{authenticationv1.AddToScheme}}

func userInfo(who user.Info) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for k, v := range who.GetExtra() {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}
