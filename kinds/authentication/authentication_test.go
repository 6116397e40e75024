package authentication_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/authentication"
	"github.com/yare-project/yare/kinds/fake"
)

func ask(t *testing.T, env kind.Env, plural string, obj kind.Object) (kind.Object, error) {
	t.Helper()
	for _, k := range authentication.Group.Kinds {
		if k.Names.Plural == plural {
			return k.Answer(context.Background(), env, obj)
		}
	}
	t.Fatalf("no kind %s", plural)
	return nil, nil
}

var ann = &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}

func TestTokenReview(t *testing.T) {
	env := &fake.Env{Tokens: func(_ context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
		if token == "good" {
			return ann, audiences, true, nil
		}
		if token == "unknown" {
			return nil, nil, false, nil
		}
		return nil, nil, false, errors.New("no good")
	}}
	info := authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	for token, want := range map[string]authenticationv1.TokenReviewStatus{
		"good":    {Authenticated: true, User: info, Audiences: []string{"a"}},
		"bad":     {Error: "no good"},
		"unknown": {Error: "invalid bearer token"},
	} {
		in := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"a"}},
			Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "root"}}}
		out, err := ask(t, env, "tokenreviews", in)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, out.(*authenticationv1.TokenReview).Status); d != "" {
			t.Errorf("%s: %s", token, d)
		}
	}
	if _, err := ask(t, env, "tokenreviews", &authenticationv1.TokenReview{}); !apierrors.IsBadRequest(err) {
		t.Errorf("no token: %v", err)
	}
}

func TestSelfSubjectReview(t *testing.T) {
	out, err := ask(t, &fake.Env{Who: ann}, "selfsubjectreviews", &authenticationv1.SelfSubjectReview{})
	if err != nil {
		t.Fatal(err)
	}
	if got := out.(*authenticationv1.SelfSubjectReview).Status.UserInfo; got.Username != "ann" || got.UID != "7" {
		t.Errorf("%+v", got)
	}
	if _, err := ask(t, &fake.Env{}, "selfsubjectreviews", &authenticationv1.SelfSubjectReview{}); err == nil {
		t.Error("nobody was somebody")
	}
}
