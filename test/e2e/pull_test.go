package e2e

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	registryUser     = "purser"
	registryPassword = "sesame-17"
	wrongPassword    = "barley-18"
)

// images is a registry on loopback that wants a password, and counts what is asked of it by those who know it.
type images struct {
	host string

	mu    sync.Mutex
	asked map[string]int // by "manifests" or "blobs"
}

func serveImages(t *testing.T) *images {
	t.Helper()
	r := &images{asked: map[string]int{}}
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, password, ok := q.BasicAuth(); !ok || user != registryUser || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="the hold"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		r.mu.Lock()
		for _, what := range []string{"manifests", "blobs"} {
			if strings.Contains(q.URL.Path, "/"+what+"/") {
				r.asked[what]++
			}
		}
		r.mu.Unlock()
		store.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *images) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[what]
}

// push puts the test image into the registry under a name.
func (c *cluster) push(r *images, as string) {
	c.t.Helper()
	image, err := tarball.ImageFromPath(filepath.Join(c.root, "bin/images/busybox.tar"), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	ref, err := name.ParseReference(r.host + "/" + as)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithAuth(&authn.Basic{Username: registryUser, Password: registryPassword})); err != nil {
		c.t.Fatal(err)
	}
}

// pulled makes a pod of an image in the registry.
func (c *cluster) pulled(r *images, pod, image, policy, secret string) {
	c.t.Helper()
	args := []string{"run", pod, "--image=" + r.host + "/" + image, "--image-pull-policy=" + policy}
	if secret != "" {
		args = append(args, `--overrides={"spec":{"imagePullSecrets":[{"name":"`+secret+`"}]}}`)
	}
	c.kubectl(append(args, "--command", "--", "sleep", "86394")...)
}

// waiting waits until a pod's container waits for one of the reasons, and returns the reason with its message.
func (c *cluster) waiting(pod string, reasons ...string) string {
	c.t.Helper()
	var text string
	c.until(pod+" waits for "+strings.Join(reasons, " or "), func() error {
		text = c.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}: {.status.containerStatuses[0].state.waiting.message}")
		for _, r := range reasons {
			if strings.HasPrefix(text, r+": ") {
				return nil
			}
		}
		return errors.New(text)
	})
	c.t.Logf("%s: %s", pod, text)
	return text
}

func (c *cluster) ready(pod string) {
	c.t.Helper()
	c.kubectl("wait", "--for=condition=Ready", "pod/"+pod, "--timeout=60s")
}

// TestPulls: images come from a registry that wants a password, by the pod's secrets or its service account's; what cannot be pulled says why.
func TestPulls(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	r := serveImages(t)
	c.push(r, "crew/box:1")
	c.up()
	for secret, password := range map[string]string{"good": registryPassword, "bad": wrongPassword} {
		c.kubectl("create", "secret", "docker-registry", secret, "--docker-server="+r.host, "--docker-username="+registryUser, "--docker-password="+password)
	}

	c.pulled(r, "late", "crew/late:1", "IfNotPresent", "good")
	c.pulled(r, "never", "crew/box:1", "Never", "good")
	c.pulled(r, "anonymous", "crew/box:1", "Always", "")
	c.pulled(r, "guess", "crew/box:1", "Always", "bad")
	c.contains("policy Never", c.waiting("never", "ErrImageNeverPull"), "crew/box:1", "not present with pull policy of Never")
	for pod, why := range map[string]string{"anonymous": "no basic auth credentials", "guess": "401 Unauthorized"} {
		message := c.waiting(pod, "ErrImagePull", "ImagePullBackOff")
		c.contains(pod, message, r.host+"/crew/box:1", why)
		if strings.Contains(message, wrongPassword) || strings.Contains(message, "\n") {
			t.Errorf("%s: the message is %q", pod, message)
		}
		c.contains(pod+"'s events", c.kubectl("events", "--for", "pod/"+pod), "Failed to pull image", why)
	}
	c.contains("an image that is not there", c.waiting("late", "ErrImagePull", "ImagePullBackOff"), "crew/late:1", "not found")

	c.pulled(r, "first", "crew/box:1", "IfNotPresent", "good")
	c.ready("first")
	c.contains("first's events", c.kubectl("events", "--for", "pod/first"), "Pulling image", "Successfully pulled image", "Image size:")
	c.contains("first's image", c.kubectl("get", "pod", "first", "-o", "jsonpath={.status.containerStatuses[0].imageID}"), r.host+"/crew/box@sha256:")

	manifests, blobs := r.count("manifests"), r.count("blobs")
	c.pulled(r, "present", "crew/box:1", "IfNotPresent", "good")
	c.ready("present")
	c.contains("present's events", c.kubectl("events", "--for", "pod/present"), "already present on machine")
	if r.count("manifests") != manifests {
		t.Error("IfNotPresent asked the registry for an image that is present")
	}
	c.pulled(r, "always", "crew/box:1", "Always", "good")
	c.ready("always")
	if r.count("manifests") == manifests {
		t.Error("Always did not ask the registry whether the image has changed")
	}
	if r.count("blobs") != blobs {
		t.Error("Always fetched layers that are present")
	}

	// A pod whose service account has the secret needs none of its own.
	c.kubectl("patch", "serviceaccount", "default", "-p", `{"imagePullSecrets":[{"name":"good"}]}`)
	c.pulled(r, "account", "crew/box:1", "Always", "")
	c.ready("account")

	c.contains("between attempts", c.waiting("anonymous", "ImagePullBackOff"), "Back-off pulling image", "no basic auth credentials")
	c.contains("a pod's events between attempts", c.kubectl("events", "--for", "pod/anonymous"), "BackOff")
	// What was not there is pulled once it is, without anybody's doing.
	c.push(r, "crew/late:1")
	c.ready("late")
	c.ready("never")
}
