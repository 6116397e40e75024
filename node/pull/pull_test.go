package pull

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/cri/fake"
)

func TestRegistryKeysFitImages(t *testing.T) {
	for _, test := range []struct {
		key, target string
		want        bool
	}{
		{"registry.example.com", "registry.example.com/app", true},
		{"https://registry.example.com/v1/", "registry.example.com/app", true},
		{"registry.example.com:5000", "registry.example.com/app", false},
		{"*.example.com", "registry.example.com/app", true},
		{"*.example.com", "example.com/app", false},
		{"registry.example.com/team", "registry.example.com/team/app", true},
		{"registry.example.com/team", "registry.example.com/teams/app", false},
		{"https://index.docker.io/v1/", "index.docker.io/library/nginx", true},
		{"docker.io", "index.docker.io/library/nginx", true},
		{"docker.io/me", "index.docker.io/library/nginx", false},
	} {
		if got := fits(test.key, test.target); got != test.want {
			t.Errorf("fits(%q, %q) = %v", test.key, test.target, got)
		}
	}
}

func TestNamesGetATag(t *testing.T) {
	for in, want := range map[string]string{"nginx": "nginx:latest", "nginx:1": "nginx:1", "r:5000/a": "r:5000/a:latest", "r:5000/a:b": "r:5000/a:b",
		"a@sha256:0123456789012345678901234567890123456789012345678901234567890123": "a@sha256:0123456789012345678901234567890123456789012345678901234567890123"} {
		if got, err := WithTag(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, bad := range []string{"UPPER", "a b", "", "a:b:c"} {
		if got, err := WithTag(bad); err == nil {
			t.Errorf("%q gave %q", bad, got)
		}
	}
}

func TestOnePullForMany(t *testing.T) {
	rt := fake.New(fake.Config{})
	rt.Missing("img:1")
	gate, began := make(chan struct{}), make(chan struct{}, 10)
	rt.OnPull(func(string, *runtimeapi.AuthConfig) error { began <- struct{}{}; <-gate; return nil })
	p := New(t.Context(), Config{Images: rt})
	var wg sync.WaitGroup
	var waiting sync.WaitGroup
	for range 10 {
		waiting.Add(1)
		wg.Go(func() {
			waiting.Done()
			if _, err := p.Image(t.Context(), &corev1.Pod{}, "c", "img:1", corev1.PullAlways, nil); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	<-began
	close(gate)
	wg.Wait()
	if n := len(rt.Pulls()); n > 2 { // one that came late may pull again
		t.Errorf("%d pulls for one image", n)
	}
}

func TestCredentialsAreTriedFromTheClosestOn(t *testing.T) {
	rt := fake.New(fake.Config{})
	rt.Missing("r.example.com/team/app:1")
	var tried []string
	rt.OnPull(func(_ string, a *runtimeapi.AuthConfig) error {
		tried = append(tried, a.GetUsername())
		if a.GetUsername() == "wide" {
			return nil
		}
		return errors.New("unauthorized")
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
		`{"auths":{"r.example.com":{"username":"wide","password":"p"},"r.example.com/team":{"username":"close","password":"p"}}}`)}}
	p := New(t.Context(), Config{Images: rt, Secret: func(context.Context, string, string) (*corev1.Secret, error) { return secret, nil }})
	pod := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}}}}
	if _, err := p.Image(t.Context(), pod, "c", "r.example.com/team/app:1", corev1.PullIfNotPresent, nil); err != nil {
		t.Fatal(err)
	}
	if len(tried) != 2 || tried[0] != "close" || tried[1] != "wide" {
		t.Errorf("tried %v", tried)
	}
}
