package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/yare-project/yare/apiserver/authn/structured"
	"github.com/yare-project/yare/apiserver/authn/tokenwebhook"
	"github.com/yare-project/yare/apiserver/authz/modes"
)

// addIdentity adds kube-apiserver's flags about who somebody is and what they may do.
func (f *flags) addIdentity(set *pflag.FlagSet) {
	id := &f.config.Identity
	set.StringVar(&id.AuthenticationConfig, "authentication-config", "", "an AuthenticationConfiguration: identity providers, and where anonymous requests may go; read again when it changes")
	anonymous := set.VarPF(optionalBool{&id.Anonymous}, "anonymous-auth", "", "let requests without credentials through, to be judged by roles: true for all paths, false for none, so that nodes cannot fetch the authority's certificate when they join (default: health, version and that certificate)")
	anonymous.NoOptDefVal = "true"
	o := &id.OIDC
	*o = structured.DefaultFlags()
	set.StringVar(&o.IssuerURL, "oidc-issuer-url", "", "URL of an OpenID Connect provider whose tokens say who somebody is")
	set.StringVar(&o.ClientID, "oidc-client-id", "", "audience that the provider's tokens must have")
	set.StringVar(&o.CAFile, "oidc-ca-file", "", "authorities for the provider's certificate (default: the machine's)")
	set.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "claim with the user's name")
	set.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "put before the user's name; - for nothing (default: the issuer's URL and #, unless the claim is email)")
	set.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim with the user's groups")
	set.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "put before each group")
	set.StringSliceVar(&o.SigningAlgs, "oidc-signing-algs", o.SigningAlgs, "algorithms that signatures may have")
	set.Var(&claims{&o.RequiredClaims}, "oidc-required-claim", "claim=value that tokens must have (repeat for more)")
	set.StringVar(&id.TokenAuthFile, "token-auth-file", "", "tokens of your own choice, as CSV: token,user,uid,\"group1,group2\"")
	w := &id.TokenWebhook
	*w = tokenwebhook.DefaultConfig()
	set.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", "", "ask the server that this kubeconfig names whose a token is")
	set.DurationVar(&w.CacheTTL, "authentication-token-webhook-cache-ttl", w.CacheTTL, "how long its answers are remembered")
	set.StringVar(&w.Version, "authentication-token-webhook-version", w.Version, "version of the TokenReview that it is sent: v1 or v1beta1")
	a := &id.Authorization
	*a = modes.DefaultOptions()
	set.StringSliceVar(&a.Modes, "authorization-mode", nil, "who decides, in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny (default Node,RBAC)")
	set.StringVar(&a.ConfigFile, "authorization-config", "", "an AuthorizationConfiguration, instead of the other flags about authorization; read again when it changes")
	set.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", "", "for the mode Webhook: ask the server that this kubeconfig names")
	set.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion, "version of the SubjectAccessReview that it is sent: v1 or v1beta1")
	set.DurationVar(&a.WebhookAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.WebhookAuthorizedTTL, "how long its consent is remembered")
	set.DurationVar(&a.WebhookUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.WebhookUnauthorizedTTL, "how long its refusal is remembered")
}

// optionalBool is a flag that may be true, false, or not given.
type optionalBool struct{ into **bool }

func (o optionalBool) Set(text string) error {
	b, err := strconv.ParseBool(text)
	if err == nil {
		*o.into = &b
	}
	return err
}

func (o optionalBool) String() string {
	if o.into == nil || *o.into == nil {
		return ""
	}
	return strconv.FormatBool(**o.into)
}

func (o optionalBool) Type() string { return "bool" }

// claims is a flag that is repeated for each key=value. Values may have commas.
type claims struct{ into *map[string]string }

func (c *claims) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return fmt.Errorf("%q: write it as claim=value", text)
	}
	if *c.into == nil {
		*c.into = map[string]string{}
	}
	(*c.into)[key] = value
	return nil
}

func (c *claims) String() string {
	if c.into == nil || len(*c.into) == 0 {
		return ""
	}
	return fmt.Sprint(*c.into)
}

func (c *claims) Type() string { return "claim=value" }
