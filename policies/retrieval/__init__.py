"""The category ``retrieval``: are the documents good enough to answer from?"""
