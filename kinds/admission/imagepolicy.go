package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/kind"
)

// imagePolicy asks a webhook whether the images of a pod may be used. Its answers are remembered for a while.
type imagePolicy struct {
	url     string
	client  *http.Client
	answers *cache.LRUExpireCache
	file    imagePolicyFile
}

// imagePolicyFile is the plugin's configuration. Times are in the units of Kubernetes: seconds to live, milliseconds to wait; -1 is none.
type imagePolicyFile struct {
	KubeConfigFile string `json:"kubeConfigFile"`
	AllowTTL       int64  `json:"allowTTL"`
	DenyTTL        int64  `json:"denyTTL"`
	RetryBackoff   int64  `json:"retryBackoff"`
	DefaultAllow   bool   `json:"defaultAllow"`
}

// settle fills in defaults and refuses what is out of bounds.
func (f *imagePolicyFile) settle() error {
	if f.KubeConfigFile == "" {
		return errors.New("imagePolicy.kubeConfigFile: must name the kubeconfig of the webhook")
	}
	for _, t := range []struct {
		name               string
		value              *int64
		standard, min, max int64
	}{{"allowTTL", &f.AllowTTL, 300, 1, 1800}, {"denyTTL", &f.DenyTTL, 30, 1, 1800}, {"retryBackoff", &f.RetryBackoff, 500, 1, 300000}} {
		switch {
		case *t.value == -1:
			*t.value = 0
		case *t.value == 0:
			*t.value = t.standard
		case *t.value < t.min || *t.value > t.max:
			return fmt.Errorf("imagePolicy.%s: %d must be from %d to %d, or -1 for none", t.name, *t.value, t.min, t.max)
		}
	}
	return nil
}

func newImagePolicy(f imagePolicyFile) (*imagePolicy, error) {
	config, err := webhook.LoadKubeconfig(f.KubeConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("imagePolicy.kubeConfigFile %s: %w", f.KubeConfigFile, err)
	}
	if config.Timeout == 0 {
		config.Timeout = 30 * time.Second
	}
	p := &imagePolicy{answers: cache.NewLRUExpireCache(1024), file: f}
	if p.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("imagePolicy.kubeConfigFile %s: %w", f.KubeConfigFile, err)
	}
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("imagePolicy.kubeConfigFile %s: %w", f.KubeConfigFile, err)
	}
	p.url = base.String()
	return p, nil
}

func (*imagePolicy) Name() string { return "ImagePolicyWebhook" }

const imagePolicyNote = "imagepolicywebhook.image-policy.k8s.io/"

func (p *imagePolicy) Validate(ctx context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	added := onSub(r, "", "pods", "ephemeralcontainers", admissionv1.Create, admissionv1.Update)
	if !ok || !added && !on(r, "", "pods", admissionv1.Create, admissionv1.Update) {
		return nil
	}
	status, err := p.review(ctx, imagesOf(pod, r.Ref.Namespace, added))
	switch {
	case err != nil && p.file.DefaultAllow:
		note(r, imagePolicyNote+"failed-open", "true")
		return nil
	case err != nil:
		return forbid(r, "%w", err)
	}
	for key, value := range status.AuditAnnotations {
		note(r, imagePolicyNote+key, value)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return forbid(r, "image policy webhook backend denied one or more images: %s", status.Reason)
	}
	return forbid(r, "one or more images rejected by webhook backend")
}

func note(r *kind.AdmissionRequest, key, value string) {
	if r.Annotate != nil {
		r.Annotate(key, value)
	}
}

// imagesOf is the question: which images, where, and what the pod says to the webhook.
func imagesOf(pod *corev1.Pod, namespace string, added bool) imagepolicyv1alpha1.ImageReviewSpec {
	spec := imagepolicyv1alpha1.ImageReviewSpec{Namespace: namespace, Annotations: map[string]string{}}
	for key, value := range pod.Annotations {
		if strings.Contains(key, ".image-policy.k8s.io/") {
			spec.Annotations[key] = value
		}
	}
	add := func(image string) {
		spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if added {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
		return spec
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			add(containers[i].Image)
		}
	}
	return spec
}

// review asks, unless the answer is known.
func (p *imagePolicy) review(ctx context.Context, spec imagepolicyv1alpha1.ImageReviewSpec) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	body, err := json.Marshal(&imagepolicyv1alpha1.ImageReview{
		TypeMeta: metav1.TypeMeta{APIVersion: imagepolicyv1alpha1.SchemeGroupVersion.String(), Kind: "ImageReview"}, Spec: spec})
	if err != nil {
		return nil, err
	}
	if known, ok := p.answers.Get(string(body)); ok {
		return known.(*imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	var status *imagepolicyv1alpha1.ImageReviewStatus
	backoff := wait.Backoff{Duration: time.Duration(p.file.RetryBackoff) * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		var again bool
		status, again, last = p.post(ctx, body)
		return last == nil || !again, nil
	})
	if last != nil {
		return nil, last
	}
	if err != nil {
		return nil, err
	}
	life := p.file.DenyTTL
	if status.Allowed {
		life = p.file.AllowTTL
	}
	p.answers.Add(string(body), status, time.Duration(life)*time.Second)
	return status, nil
}

// maxReview bounds a webhook's answer, in bytes.
const maxReview = 1 << 20

func (p *imagePolicy) post(ctx context.Context, body []byte) (status *imagepolicyv1alpha1.ImageReviewStatus, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, ctx.Err() == nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReview))
	if err != nil {
		return nil, true, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("the image policy webhook answered %s", resp.Status)
	}
	var review imagepolicyv1alpha1.ImageReview
	if err := json.Unmarshal(text, &review); err != nil {
		return nil, false, fmt.Errorf("the image policy webhook answered no ImageReview: %w", err)
	}
	return &review.Status, false, nil
}
