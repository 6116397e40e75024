package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// WebhookConfig says where events are posted.
type WebhookConfig struct {
	// Kubeconfig is the path of a kubeconfig whose current context names the server and the credentials.
	Kubeconfig string
	// Backoff is how long the first repetition of a failed call waits.
	Backoff  time.Duration
	Truncate Truncate
	Clock    clock.Clock // nil: the real one
}

// Webhook is the Sink that posts each batch as an audit.k8s.io/v1 EventList.
type Webhook struct {
	cfg    WebhookConfig
	url    string
	client *http.Client
}

// NewWebhook reads the kubeconfig. The error names it and says what is wrong.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	config, err := webhook.LoadKubeconfig(cfg.Kubeconfig, nil)
	if err != nil {
		return nil, fmt.Errorf("--audit-webhook-config-file %s: %w", cfg.Kubeconfig, err)
	}
	if config.Timeout == 0 {
		config.Timeout = callTimeout
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("--audit-webhook-config-file %s: %w", cfg.Kubeconfig, err)
	}
	// A redirect would send what is recorded to somebody else.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("--audit-webhook-config-file %s: %w", cfg.Kubeconfig, err)
	}
	return &Webhook{cfg: cfg, url: base.String(), client: client}, nil
}

const (
	// callTimeout is of one call; attempts, growth and jitter are of the calls for one batch: as Kubernetes' webhooks have them.
	callTimeout = 30 * time.Second
	attempts    = 5
	growth      = 1.5
	jitter      = 0.2
	// maxReply is how much of an answer is read, so that the connection can be used again.
	maxReply = 64 << 10
)

// Name implements Sink.
func (*Webhook) Name() string { return "webhook" }

// Close implements Sink.
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

// Write implements Sink: it posts the events, in several lists if they are large.
func (w *Webhook) Write(ctx context.Context, events []*auditv1.Event) error {
	var faults []error
	var list []byte
	for _, e := range events {
		doc, err := w.cfg.Truncate.encode(e)
		if err != nil {
			faults = append(faults, fmt.Errorf("event %s at %s: %w", e.AuditID, e.Stage, err))
			continue
		}
		if limit := w.cfg.Truncate.Batch; limit > 0 && len(list) > 0 && int64(len(list)+len(doc)) > limit {
			faults = append(faults, w.deliver(ctx, list))
			list = nil
		}
		if len(list) > 0 {
			list = append(list, ',')
		}
		list = append(list, doc...)
	}
	if len(list) > 0 {
		faults = append(faults, w.deliver(ctx, list))
	}
	return errors.Join(faults...)
}

// deliver posts a list until it is taken, refused for good, or has been tried often enough.
func (w *Webhook) deliver(ctx context.Context, items []byte) error {
	body, err := envelope(items)
	if err != nil {
		return err
	}
	wait := float64(w.cfg.Backoff)
	for try := 1; ; try++ {
		again, err := w.post(ctx, body)
		if err == nil || !again || try == attempts {
			return err
		}
		timer := w.cfg.Clock.NewTimer(time.Duration(wait * (1 + jitter*rand.Float64())))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(err, ctx.Err())
		}
		wait *= growth
	}
}

func envelope(items []byte) ([]byte, error) {
	head, err := json.Marshal(map[string]any{"apiVersion": auditv1.SchemeGroupVersion.String(), "kind": "EventList", "metadata": struct{}{}})
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(head)+len(items)+16)
	body = append(body, head[:len(head)-1]...)
	body = append(body, `,"items":[`...)
	body = append(body, items...)
	return append(body, "]}"...), nil
}

// post makes one call; again says that another may do better.
func (w *Webhook) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return ctx.Err() == nil, fmt.Errorf("post audit events: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return false, nil
	}
	again = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
	return again, fmt.Errorf("post audit events: the webhook answered %s", resp.Status)
}
