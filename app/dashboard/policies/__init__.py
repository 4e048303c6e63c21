"""What the policy pages need: the form's fields, the editor's state and version diffs."""
