package explain

// codes are the topics of the API's errors.
func codes() []Topic {
	return []Topic{
		{
			"CAP-1400", "the request is not valid", "A value, a manifest or a parameter cannot be accepted as it is. Nothing was changed.",
			[]string{"a field has a wrong type or a value out of its range", "a manifest is not valid YAML, or names a field that does not exist", "a setting has a name that this release does not know"},
			[]string{"read the message: it names the object, the field and the line", "try it with --dry-run", "`capstan settings get --known` lists the settings"},
		},
		{
			"CAP-1401", "sign-in needed", "The request has no sign-in, or one that is not valid any more.",
			[]string{"the session has expired, or was ended", "the token was revoked, or has expired", "the password or the token is wrong"},
			[]string{"sign in again: `capstan relogin`", "in automation: set CAPSTAN_TOKEN to a token that is valid"},
		},
		{
			"CAP-1403", "forbidden", "You are signed in, and have no right to do this.",
			[]string{"no rule of your roles, groups or token permits it", "a rule denies it", "a setting of the tenant forbids it for everybody"},
			[]string{"ask an admin of the tenant for the right that the message names", "`capstan whoami` shows who is signed in, and the roles"},
		},
		{
			"CAP-1404", "not found", "There is no such thing, or none that you may see.",
			[]string{"the name is misspelt", "it is in another namespace, project or organisation", "it was deleted"},
			[]string{"list what there is, such as `capstan app list`", "write NAMESPACE/NAME for an application outside of argocd", "ask an admin whether you may see it"},
		},
		{
			"CAP-1405", "not this method", "The address exists, but not for this HTTP method.",
			[]string{"a program calls the API with the wrong method", "the program was written for another release"},
			[]string{"compare the call with /openapi.yaml of the hub"},
		},
		{
			"CAP-1409", "conflict", "The state of the object does not permit this now.",
			[]string{"an operation of the application is in progress", "a sync window is closed", "there is an object of that name already", "something else still uses it"},
			[]string{"read the message: it says what is in the way", "wait for the operation, or end it by `capstan app terminate NAME`"},
		},
		{
			"CAP-1412", "changed meanwhile", "Somebody else changed the object after you read it, so your change was not made.",
			[]string{"two people or programs changed it at the same time"},
			[]string{"read it again, make the change again, and send it with the new resource version"},
		},
		{
			"CAP-1413", "too large", "A request or a manifest has more bytes or objects than are accepted.",
			[]string{"one apply has more than 10 MiB or 2000 objects", "a value of a setting has more than 1 MiB"},
			[]string{"split it into several requests", "`capstan import` splits its input itself"},
		},
		{
			"CAP-1429", "too many", "A limit of the tenant or of the caller is reached.",
			[]string{"more requests per second than the hub accepts of one caller", "too many failed sign-ins", "too many objects of a kind"},
			[]string{"wait for the time that the header Retry-After names, and try again", "send fewer requests: follow the event stream instead of asking again and again"},
		},
		{
			"CAP-1430", "quota reached", "The tenant has as much of something as it may have. Nothing was changed.",
			[]string{"the tenant has as many applications, clusters or repositories as its quota allows", "it renders or stores as much as its quota allows"},
			[]string{"delete what is not needed", "ask the operator of the hub for a larger quota"},
		},
		{
			"CAP-1500", "a defect of the hub", "Something went wrong that is not your fault. The message shows no details.",
			[]string{"a defect of the product", "its database could not answer"},
			[]string{"try again", "if it stays, give the request id to the operator of the hub: its log has the cause"},
		},
		{
			"CAP-1503", "not reachable now", "A part that is needed for the answer cannot be reached at the moment.",
			[]string{"the agent of the cluster is not connected", "the database or a Git host does not answer", "the hub is being restarted"},
			[]string{"try again in a moment", "`capstan cluster list` shows whether the agent is connected, and since when it is not"},
		},
	}
}
